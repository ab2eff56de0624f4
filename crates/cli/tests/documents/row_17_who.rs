//! Row 17: `SITE WHO` and `SITE STAT` count the sessions of all workers.

use super::site::{Client, Site};

#[test]
fn an_administrator_sees_the_sessions_of_all_workers() {
    let site = Site::start("who", "workers = 4");
    let mut eve = site.log_in("eve");
    assert!(eve.say("SITE STAT", "211").contains(" 1 session is logged in\r\n"));
    let others: Vec<Client> = (0..12).map(|_| site.log_in("bob")).collect();
    let stranger = Client::connect(&site.ftp);
    assert!(eve.say("SITE STAT", "211").contains(" 13 sessions are logged in\r\n"));
    let who = eve.say("SITE WHO", "211");
    let has = |text: &str| who.matches(text).count();
    assert_eq!(
        (has(" eve from 127.0.0.1 by FTP"), has(" bob from 127.0.0.1 by FTP"), has(" (not logged in) from")),
        (1, 12, 1),
        "{who}"
    );
    assert_eq!(site.ask(&["sessions"])["sessions"].as_array().unwrap().len(), 14);
    drop((others, stranger));
    // Others see only themselves.
    let own = site.log_in("bob").say("SITE WHO", "211");
    assert_eq!((own.matches("bob").count(), own.lines().count()), (1, 3), "{own}");
}
