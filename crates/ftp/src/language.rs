//! `LANG` (RFC 2640): the fixed texts of replies in another language.

use crate::reply::Reply;

/// A language other than English.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    German,
}

impl Language {
    /// Parses the argument of `LANG`, an RFC 1766 tag, of which the first part counts: `Some(None)` is
    /// English, and so is no tag at all, because sessions begin with it.
    pub(crate) fn parse(tag: &[u8]) -> Option<Option<Self>> {
        let primary = tag.split(|&byte| byte == b'-').next().unwrap_or_default();
        match &primary.to_ascii_uppercase()[..] {
            b"" | b"EN" => Some(None),
            b"DE" => Some(Some(Self::German)),
            _ => None,
        }
    }

    /// `EN*;DE`, for `FEAT`, with a star after the chosen language.
    pub(crate) fn feature(chosen: Option<Self>) -> &'static str {
        match chosen {
            None => "EN*;DE",
            Some(Self::German) => "EN;DE*",
        }
    }

    /// The reply with its fixed text translated, where there is a translation.
    pub(crate) fn translate(self, reply: Reply) -> Reply {
        match self {
            Self::German => reply.translated(german),
        }
    }
}

fn german(english: &str) -> Option<&'static str> {
    GERMAN.iter().find(|(text, _)| *text == english).map(|(_, german)| *german)
}

/// English and German, in the order of the source files.
const GERMAN: &[(&str, &str)] = &[
    (
        "Internal error: the answer does not fit the question.",
        "Interner Fehler: Die Antwort passt nicht zur Frage.",
    ),
    ("Use PASV, EPSV, PORT or EPRT first.", "Zuerst PASV, EPSV, PORT oder EPRT verwenden."),
    (
        "Nothing moved for too long: transfer aborted.",
        "Zu lange hat sich nichts bewegt: Übertragung abgebrochen.",
    ),
    ("Transfer aborted.", "Übertragung abgebrochen."),
    ("Cannot open the data connection", "Die Datenverbindung kommt nicht zustande"),
    ("The data connection is not secure", "Die Datenverbindung ist nicht sicher"),
    ("The data connection broke", "Die Datenverbindung ist abgerissen"),
    ("Transfer aborted", "Übertragung abgebrochen"),
    ("The listing is not whole", "Das Verzeichnis ist nicht vollständig"),
    ("Transfer failed", "Übertragung fehlgeschlagen"),
    (
        "Transfer complete, without what could not be read",
        "Übertragung beendet, ohne das, was nicht zu lesen war",
    ),
    ("more", "weitere"),
    ("no such file or directory", "keine solche Datei, kein solches Verzeichnis"),
    ("permission denied", "nicht erlaubt"),
    ("is a directory", "ist ein Verzeichnis"),
    ("not a directory", "ist kein Verzeichnis"),
    ("not a regular file", "ist keine gewöhnliche Datei"),
    ("already exists", "gibt es schon"),
    ("directory not empty", "das Verzeichnis ist nicht leer"),
    ("name not allowed", "dieser Name ist nicht erlaubt"),
    ("file name too long", "der Name ist zu lang"),
    ("too many levels of symbolic links", "zu viele Links hintereinander"),
    ("read-only", "nur lesbar"),
    ("no space left on device", "kein Platz mehr auf dem Datenträger"),
    ("quota exceeded", "das Kontingent des Datenträgers ist erschöpft"),
    ("file too large", "die Datei ist zu groß"),
    ("offset is beyond the end of the file", "der Versatz liegt hinter dem Ende der Datei"),
    ("server is out of resources", "dem Server fehlen gerade die Mittel"),
    (
        "it is in another place; copy it and delete it",
        "liegt an einem anderen Ort; bitte kopieren und löschen",
    ),
    ("not supported", "wird nicht unterstützt"),
    ("in use; try again later", "wird gerade von jemand anderem benutzt; bitte später noch einmal"),
    ("cancelled", "abgebrochen"),
    ("would wait for the device", "müsste auf den Datenträger warten"),
    (
        "where this is kept cannot be reached now; try again later",
        "wo dies liegt, ist gerade nicht zu erreichen; bitte später noch einmal",
    ),
    ("input/output error on the server", "Ein-/Ausgabefehler auf dem Server"),
    ("the quota of bytes of this account is used up", "das Kontingent dieses Kontos an Bytes ist erschöpft"),
    ("the quota of bytes of this folder is used up", "das Kontingent dieses Ordners an Bytes ist erschöpft"),
    (
        "the quota of files of this account is used up",
        "das Kontingent dieses Kontos an Dateien ist erschöpft",
    ),
    (
        "the quota of files of this folder is used up",
        "das Kontingent dieses Ordners an Dateien ist erschöpft",
    ),
    ("this account may upload no more for now", "dieses Konto darf vorerst nichts mehr hochladen"),
    ("this folder may upload no more for now", "dieser Ordner darf vorerst nichts mehr hochladen"),
    ("this account may download no more for now", "dieses Konto darf vorerst nichts mehr herunterladen"),
    ("this folder may download no more for now", "dieser Ordner darf vorerst nichts mehr herunterladen"),
    ("this account may transfer no more for now", "dieses Konto darf vorerst nichts mehr übertragen"),
    ("this folder may transfer no more for now", "dieser Ordner darf vorerst nichts mehr übertragen"),
    (
        "this account has to upload before it may download more",
        "dieses Konto muss erst hochladen, bevor es mehr herunterladen darf",
    ),
    (
        "this folder has to upload before it may download more",
        "dieser Ordner muss erst hochladen, bevor er mehr herunterladen darf",
    ),
    ("Not a usable path: it contains a NUL byte.", "Kein brauchbarer Pfad: Er enthält ein NUL-Byte."),
    (
        "Not a usable path: a name in it is longer than 255 bytes.",
        "Kein brauchbarer Pfad: Ein Name darin ist länger als 255 Bytes.",
    ),
    (
        "Not a usable path: it is longer than 4095 bytes.",
        "Kein brauchbarer Pfad: Er ist länger als 4095 Bytes.",
    ),
    ("The server is shutting down.", "Der Server wird heruntergefahren."),
    ("Expected no number, one, or two.", "Erwartet wird keine Zahl, eine oder zwei."),
    ("Limit bandwidth accepted.", "Begrenzung der Bandbreite angenommen."),
    ("The server is shutting down. Goodbye.", "Der Server wird beendet. Auf Wiedersehen."),
    ("Not the shutdown password.", "Das ist nicht das Kennwort zum Beenden."),
    ("Disconnected by the administrator.", "Von der Verwaltung getrennt."),
    (
        "This account can no longer be used here: closing the control connection.",
        "Dieses Konto kann hier nicht mehr benutzt werden: Die Steuerverbindung wird geschlossen.",
    ),
    ("Goodbye.", "Auf Wiedersehen."),
    ("Please log in with USER and PASS.", "Bitte mit USER und PASS anmelden."),
    ("TLS needs no ADAT.", "TLS braucht kein ADAT."),
    ("TLS protects the whole connection: use AUTH TLS.", "TLS schützt die ganze Verbindung: AUTH TLS."),
    ("CPSV needs PROT P.", "CPSV braucht PROT P."),
    ("Unknown mechanism: use AUTH TLS.", "Unbekanntes Verfahren: AUTH TLS."),
    (
        "This server has no certificate: TLS is not available.",
        "Dieser Server hat kein Zertifikat: TLS gibt es nicht.",
    ),
    ("The connection is encrypted already.", "Die Verbindung ist schon verschlüsselt."),
    ("Begin with TLS.", "Beginnen Sie mit TLS."),
    ("Data connections are encrypted.", "Datenverbindungen sind verschlüsselt."),
    (
        "Listings have to be encrypted here: AUTH TLS, or LIST with PROT P.",
        "Auflistungen müssen hier verschlüsselt sein: AUTH TLS, oder LIST mit PROT P.",
    ),
    (
        "Data connections have to be encrypted here: PROT P.",
        "Datenverbindungen müssen hier verschlüsselt sein: PROT P.",
    ),
    ("Data connections are in clear.", "Datenverbindungen sind unverschlüsselt."),
    ("TLS has no such level: use PROT P, or PROT C.", "Diese Stufe hat TLS nicht: PROT P oder PROT C."),
    ("Give AUTH TLS first.", "Zuerst AUTH TLS."),
    ("Give PBSZ first.", "Zuerst PBSZ."),
    ("The control connection is in clear already.", "Die Steuerverbindung ist schon unverschlüsselt."),
    ("Commands stay encrypted on this server.", "Befehle bleiben auf diesem Server verschlüsselt."),
    ("Back to clear text.", "Zurück zum Klartext."),
    ("SSCN needs PROT P.", "SSCN braucht PROT P."),
    ("HOST comes before USER.", "HOST kommt vor USER."),
    ("Not the name of a host.", "Kein Name eines Hosts."),
    ("Welcome there.", "Willkommen dort."),
    ("There is no such host here.", "Diesen Host gibt es hier nicht."),
    (
        "Encryption is required here: give AUTH TLS first.",
        "Verschlüsselung ist hier Pflicht: zuerst AUTH TLS.",
    ),
    ("A NUL byte in the argument.", "Ein NUL-Byte im Argument."),
    (
        "A transfer is in progress; STAT without an argument reports it.",
        "Eine Übertragung läuft; STAT ohne Argument berichtet davon.",
    ),
    ("Still here; a transfer is in progress.", "Noch da; eine Übertragung läuft."),
    ("This is an FTP server, not an HTTP server.", "Dies ist ein FTP-Server, kein HTTP-Server."),
    ("Unknown command; HELP lists those that are known.", "Unbekannter Befehl; HELP zeigt die bekannten."),
    (
        "Too many unknown commands: closing the control connection.",
        "Zu viele unbekannte Befehle: Die Steuerverbindung wird geschlossen.",
    ),
    ("Permission denied: this account may not do that.", "Nicht erlaubt: Dieses Konto darf das nicht."),
    ("Aborted before it had begun.", "Abgebrochen, bevor es begonnen hatte."),
    ("End of status.", "Ende des Status."),
    ("The command line is too long.", "Die Befehlszeile ist zu lang."),
    ("ABOR successful.", "ABOR erfolgreich."),
    (
        "Idle for too long: closing the control connection.",
        "Zu lange untätig: Die Steuerverbindung wird geschlossen.",
    ),
    (
        "No login in time: closing the control connection.",
        "Keine rechtzeitige Anmeldung: Die Steuerverbindung wird geschlossen.",
    ),
    (
        "Too many failed logins: closing the control connection.",
        "Zu viele Fehlversuche: Die Steuerverbindung wird geschlossen.",
    ),
    ("Login incorrect.", "Anmeldung fehlgeschlagen."),
    ("Unknown hash; FEAT lists those that are known.", "Unbekannte Prüfsumme; FEAT zeigt die bekannten."),
    (
        "The argument is a name, in quotes, and perhaps start and end.",
        "Das Argument ist ein Name in Anführungszeichen, dazu vielleicht Anfang und Ende.",
    ),
    (
        "The argument is up to 64 names with commas between them.",
        "Das Argument sind bis zu 64 Namen mit Kommas dazwischen.",
    ),
    (
        "A range is served in MODE S, STRU F and TYPE I only.",
        "Einen Bereich gibt es nur in MODE S, STRU F und TYPE I.",
    ),
    (
        "This file is made while it is sent: fetch it from its start, and whole.",
        "Diese Datei entsteht erst beim Senden: Sie ist von Anfang an und ganz zu holen.",
    ),
    (
        "In MODE Z a transfer can be restarted in STRU F and TYPE I only.",
        "In MODE Z lässt sich eine Übertragung nur in STRU F und TYPE I fortsetzen.",
    ),
    ("The offset is a number of bytes.", "Der Versatz ist eine Anzahl von Bytes."),
    ("The range is reset: the whole file.", "Der Bereich ist aufgehoben: die ganze Datei."),
    (
        "An upload can be restarted in STRU F and TYPE I only.",
        "Ein Hochladen lässt sich nur in STRU F und TYPE I fortsetzen.",
    ),
    (
        "Ready to receive; writing in place at the end of the file.",
        "Empfangsbereit; geschrieben wird ans Ende der Datei.",
    ),
    ("STOU takes the beginning of a name, or nothing.", "STOU nimmt den Anfang eines Namens oder nichts."),
    ("ALLO takes numbers of bytes.", "ALLO erwartet Anzahlen von Bytes."),
    ("There is room.", "Platz ist vorhanden."),
    ("No allocation is needed here.", "Platz muss hier nicht reserviert werden."),
    ("This connection is IPv6: use EPRT or EPSV.", "Diese Verbindung ist IPv6: EPRT oder EPSV verwenden."),
    (
        "No document says what this command does: use EPRT or EPSV.",
        "Kein Dokument sagt, was dieser Befehl tut: EPRT oder EPSV verwenden.",
    ),
    ("Refused: EPSV ALL was given.", "Abgelehnt: EPSV ALL gilt."),
    ("Not an address and port.", "Keine Adresse mit Port."),
    (
        "Network protocol not supported, use (1,2).",
        "Netzwerkprotokoll nicht unterstützt, möglich sind (1,2).",
    ),
    ("This connection is IPv4, use (1).", "Diese Verbindung ist IPv4, möglich ist (1)."),
    ("This connection is IPv6, use (2).", "Diese Verbindung ist IPv6, möglich ist (2)."),
    ("Supported address families are (4,6).", "Unterstützte Adressfamilien sind (4,6)."),
    (
        "Refused: the address is not that of this client.",
        "Abgelehnt: Das ist nicht die Adresse dieses Clients.",
    ),
    ("Refused: ports below 1024 are not for data.", "Abgelehnt: Ports unter 1024 sind nicht für Daten."),
    ("Will connect to you.", "Der Server wird die Verbindung aufbauen."),
    ("Only EPSV from now on.", "Von jetzt an nur noch EPSV."),
    ("PASV cannot name an IPv6 address: use EPSV.", "PASV kann keine IPv6-Adresse nennen: EPSV verwenden."),
    (
        "Telnet options in the line have no end; a byte 255 of a name is sent twice.",
        "Telnet-Optionen in der Zeile haben kein Ende; ein Byte 255 eines Namens wird doppelt gesendet.",
    ),
    ("No passive port.", "Kein passiver Port."),
    ("No passive port: {}.", "Kein passiver Port: {}."),
    ("{} created.", "{} angelegt."),
    ("{} is the current directory.", "{} ist das aktuelle Verzeichnis."),
    (
        "The file ends at byte {}: it cannot be restarted at {}.",
        "Die Datei endet bei Byte {}: Sie kann nicht bei {} fortgesetzt werden.",
    ),
    ("Restarting at {}; send RETR, STOR or APPE.", "Es geht bei {} weiter; jetzt RETR, STOR oder APPE."),
    (
        "Ready to receive; writing in place from byte {}.",
        "Bereit zum Empfang; es wird ab Byte {} in die Datei selbst geschrieben.",
    ),
    ("Only {} bytes are free.", "Nur {} Bytes sind frei."),
    ("The mask is {}.", "Die Maske ist {}."),
    ("The mask is {} now.", "Die Maske ist jetzt {}."),
    ("The checksum is {}.", "Die Prüfsumme ist {}."),
    ("{} of {} bytes are free.", "{} von {} Bytes sind frei."),
    ("Idle after {} s; up to {} s can be had.", "Untätig nach {} s; bis zu {} s sind möglich."),
    ("Idle after {} s now.", "Untätig jetzt nach {} s."),
    ("The time is from 1 to {} seconds.", "Die Zeit liegt zwischen 1 und {} Sekunden."),
    ("Bytes copied: {}.", "Kopierte Bytes: {}."),
    ("Removed; entries: {}.", "Entfernt; Einträge: {}."),
    ("Combined; the file's size is {}.", "Zusammengefügt; die Größe der Datei ist {}."),
    ("One server has it all: go on with PASV.", "Ein Server hat alles: weiter mit PASV."),
    (
        "PRET takes a command that uses the data connection.",
        "PRET erwartet einen Befehl, der die Datenverbindung benutzt.",
    ),
    ("The time of creation cannot be set here.", "Die Zeit der Erstellung lässt sich hier nicht setzen."),
    ("A path is missing.", "Ein Pfad fehlt."),
    (
        "A fact that cannot be changed; FEAT lists those that can.",
        "Eine Angabe, die sich nicht ändern lässt; FEAT zeigt die änderbaren.",
    ),
    (
        "SIZE is not available in TYPE A or E: it would have to convert the file.",
        "SIZE gibt es nicht in TYPE A oder E: Die Datei müsste dafür umgewandelt werden.",
    ),
    ("SIZE is available in MODE S and STRU F only.", "SIZE gibt es nur in MODE S und STRU F."),
    ("Nothing to abort.", "Nichts abzubrechen."),
    (
        "HELP and a command, or SITE HELP and one, tells its syntax.",
        "HELP oder SITE HELP mit einem Befehl zeigt dessen Syntax.",
    ),
    ("End", "Ende"),
    ("Deleted.", "Gelöscht."),
    ("Removed.", "Entfernt."),
    ("Renamed.", "Umbenannt."),
    ("Permission denied: the name is taken.", "Nicht erlaubt: Der Name ist vergeben."),
    ("Ready for RNTO.", "Bereit für RNTO."),
    ("Give RNFR first.", "Zuerst RNFR angeben."),
    ("Here comes the listing.", "Hier kommt das Verzeichnis."),
    ("Noted.", "Vermerkt."),
    ("No such option.", "Diese Option gibt es nicht."),
    ("UTF-8 names it is.", "Namen sind in UTF-8."),
    ("Names pass as the bytes that they are.", "Namen gehen als die Bytes durch, die sie sind."),
    ("Replies are in English now.", "Antworten sind jetzt auf Deutsch."),
    ("Replies are not available in that language.", "In dieser Sprache gibt es keine Antworten."),
    (
        "There is one file system here, and it is mounted.",
        "Hier gibt es ein Dateisystem, und es ist eingehängt.",
    ),
    ("Directory changed.", "Verzeichnis gewechselt."),
    ("Transfer complete.", "Übertragung abgeschlossen."),
    ("No account is needed here.", "Hier ist kein Konto nötig."),
    (
        "Anonymous access is welcome; any password will do.",
        "Anonymer Zugang ist willkommen; jedes Kennwort genügt.",
    ),
    ("Password, please.", "Bitte das Kennwort."),
    ("Give USER first.", "Zuerst USER angeben."),
    ("Already logged in; USER begins anew.", "Schon angemeldet; USER beginnt von vorn."),
    ("Give ACCT, or USER to begin anew.", "Es fehlt ACCT; USER beginnt von vorn."),
    ("Give the code of your second factor, by ACCT.", "Bitte mit ACCT den Code des zweiten Faktors."),
    ("Logged in.", "Angemeldet."),
    ("Logged in: your certificate is enough.", "Angemeldet: Ihr Zertifikat genügt."),
    ("Ready for a new user.", "Bereit für eine neue Anmeldung."),
    (
        "Only non-print format and 8-bit bytes are served.",
        "Nur das Format ohne Drucksteuerung und Bytes zu 8 Bit gibt es hier.",
    ),
    ("Only 8-bit bytes are served.", "Nur Bytes zu 8 Bit gibt es hier."),
    ("Type is image.", "Der Typ ist Image."),
    ("Type is ASCII non-print.", "Der Typ ist ASCII ohne Drucksteuerung."),
    ("Type is EBCDIC non-print (code page 037).", "Der Typ ist EBCDIC ohne Drucksteuerung (Codepage 037)."),
    ("Page structure is not served.", "Die Seitenstruktur gibt es hier nicht."),
    ("Structure set.", "Struktur gesetzt."),
    ("Compressed mode is not served.", "Den komprimierten Modus gibt es hier nicht."),
    ("MODE Z is switched off on this server.", "MODE Z ist auf diesem Server abgeschaltet."),
    ("Mode set.", "Modus gesetzt."),
    ("The level is a digit from 0 to 9.", "Die Stufe ist eine Ziffer von 0 bis 9."),
    ("Deflate level set.", "Kompressionsstufe gesetzt."),
    ("The mask is the server's own.", "Die Maske ist die des Servers."),
    ("Changed.", "Geändert."),
    ("UTC+0000: all times are UTC here.", "UTC+0000: Alle Zeiten sind hier in UTC."),
    ("The system sizes the buffers by itself.", "Das System bemisst die Puffer selbst."),
    ("No programs are run here.", "Hier werden keine Programme ausgeführt."),
    ("No index is kept here; LIST takes patterns.", "Hier gibt es keinen Index; LIST nimmt Muster an."),
    ("There are no aliases.", "Es gibt keine Aliasse."),
    ("There is no such alias.", "Diesen Alias gibt es nicht."),
    ("Groups have no passwords here.", "Gruppen haben hier keine Kennwörter."),
    (
        "Unknown SITE command; SITE HELP lists those that are known.",
        "Unbekannter SITE-Befehl; SITE HELP zeigt die bekannten.",
    ),
    ("Link made.", "Link angelegt."),
    ("The link is there.", "Der Link ist da."),
    ("Ready for SITE CPTO.", "Bereit für SITE CPTO."),
    ("Give SITE CPFR first.", "Zuerst SITE CPFR angeben."),
    ("A file cannot be copied onto itself.", "Eine Datei kann nicht auf sich selbst kopiert werden."),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::session::failure::{tests::errors, told};

    /// Texts that programs read, or that are the same in every language.
    const KEPT: &[&str] = &[
        "UNIX Type: L8",
        "Name=Millrace; OS=Unix; CaseSensitive=1; DirSep=/;",
        "OK.",
        "PBSZ=0",
        "SSCN:CLIENT METHOD",
        "SSCN:SERVER METHOD",
    ];

    /// Every source file of the commands and the session, without its tests.
    fn sources(directory: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(text.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
            }
        }
    }

    /// The text between the parenthesis after which `text` begins and its partner.
    fn arguments(text: &str) -> &str {
        let (mut depth, mut quoted) = (1, false);
        for (at, character) in text.char_indices() {
            match character {
                '"' => quoted = !quoted,
                '(' if !quoted => depth += 1,
                ')' if !quoted => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return &text[..at];
            }
        }
        panic!("no end: {text}");
    }

    /// The fixed text of every reply in the crate: the last literal of each call that makes one.
    fn fixed_texts() -> Vec<String> {
        let mut files = Vec::new();
        for directory in ["src/session/commands", "src/session"] {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory), &mut files);
        }
        let calls = files.iter().flat_map(|file| {
            ["Reply::new(", "Reply::lines("].into_iter().flat_map(move |call| file.split(call).skip(1))
        });
        calls
            .map(|call| {
                let literal = arguments(call).rsplit('"').nth(1);
                literal.unwrap_or_else(|| panic!("a reply without a literal text: {call:.80}")).to_owned()
            })
            .collect()
    }

    /// The fixed parts of composed texts, and descriptions of files.
    fn fixed_parts() -> Vec<String> {
        let mut files = Vec::new();
        for directory in ["src/session/commands", "src/session"] {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory), &mut files);
        }
        let behind = files.iter().flat_map(|file| file.split("Fixed(\"").skip(1));
        let literals = behind.map(|text| text.split('"').next().unwrap_or_default().to_owned());
        let filled = files.iter().flat_map(|file| file.split("Reply::filled(").skip(1));
        let sentences = filled.map(|call| arguments(call).split('"').nth(1).unwrap_or(call).to_owned());
        let of_files = errors().into_iter().map(|error| told(&error).to_owned());
        literals.chain(sentences).chain(of_files).collect()
    }

    #[test]
    fn every_fixed_text_has_a_translation() {
        let mut texts = fixed_texts();
        texts.extend(fixed_parts());
        assert!(texts.len() > 100, "the search finds the texts");
        for text in &texts {
            let is_kept = KEPT.contains(&&text[..]) || text.starts_with("Syntax: ");
            assert!(is_kept || german(text).is_some(), "no German for: {text}");
        }
        for (english, german) in GERMAN {
            assert!(texts.iter().any(|text| text == english), "no reply has: {english}");
            assert_eq!(english.matches("{}").count(), german.matches("{}").count(), "{english}");
        }
    }

    #[test]
    fn a_tag_counts_by_its_first_part() {
        assert_eq!(Language::parse(b"de-AT"), Some(Some(Language::German)));
        assert_eq!(Language::parse(b"en-GB"), Some(None));
        assert_eq!(Language::parse(b""), Some(None));
        assert_eq!(Language::parse(b"den"), None);
    }
}
