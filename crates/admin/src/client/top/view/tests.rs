use serde_json::json;

use super::*;

fn session(number: u64, user: &str, bytes: u64) -> Value {
    json!({
        "session": number, "user": user, "peer": format!("192.0.2.{number}:4000"), "protocol": "ftp", "age": 75.0,
        "idle": number as f64, "command": "RETR", "place": "/", "waits-for": "client",
        "transfer": { "kind": "download", "path": "/pub/file.iso", "bytes": bytes, "total": 1000, "seconds": 1.0 },
    })
}

fn view() -> TopView {
    let mut view = TopView::default();
    view.take(
        &json!({ "sessions": [session(3, "eve", 100), session(4, "bob", 900), session(5, "ann", 500)] }),
    );
    view
}

fn users(view: &TopView) -> Vec<&str> {
    view.listed().map(|session| &*session.user).collect()
}

fn texts(view: &mut TopView, size: (usize, usize)) -> Vec<String> {
    view.lines(size).into_iter().map(|line| line.text).collect()
}

#[test]
fn keys_sort_reverse_and_filter() {
    let mut view = view();
    assert_eq!(users(&view), ["eve", "bob", "ann"]);
    view.press(Key::Char('s'));
    assert_eq!(users(&view), ["ann", "bob", "eve"]);
    for _ in 0..4 {
        view.press(Key::Char('s'));
    }
    assert_eq!(view.sort, SortKey::Rate);
    assert_eq!(users(&view), ["bob", "ann", "eve"]);
    view.press(Key::Char('r'));
    assert_eq!(users(&view), ["eve", "ann", "bob"]);
    view.press(Key::Char('/'));
    "192.0.2.5".chars().for_each(|char| _ = view.press(Key::Char(char)));
    view.press(Key::Enter);
    assert_eq!(users(&view), ["ann"]);
    view.press(Key::Escape);
    assert_eq!(users(&view).len(), 3);
}

#[test]
fn the_selection_goes_with_its_session_and_is_what_is_ended() {
    let mut view = view();
    view.press(Key::Down);
    view.press(Key::Char('s'));
    view.take(&json!({ "sessions": [session(3, "eve", 200), session(4, "bob", 950)] }));
    assert_eq!(view.press(Key::Char('k')), KeyEffect::None);
    let question = texts(&mut view, (100, 10)).pop().unwrap();
    assert!(question.starts_with("End session 4 (bob from 192.0.2.4)?"), "{question}");
    assert_eq!(view.press(Key::Char('n')), KeyEffect::None);
    view.press(Key::Char('k'));
    assert_eq!(view.press(Key::Char('y')), KeyEffect::Kick(4));
}

#[test]
fn a_followed_session_tells_what_it_did() {
    let mut view = view();
    view.press(Key::Char('f'));
    let mut idle = session(3, "eve", 0);
    (idle["transfer"], idle["command"], idle["place"]) = (Value::Null, "CWD".into(), "/new".into());
    view.take(&json!({ "sessions": [idle] }));
    view.take(&json!({ "sessions": [] }));
    let lines = texts(&mut view, (100, 20));
    let title =
        lines.iter().position(|line| line.starts_with("-- session 3: eve from 192.0.2.3:4000 by ftp"));
    let title = title.unwrap();
    assert!(lines[title + 1].contains("has ended"), "{lines:?}");
    assert_eq!(
        &lines[title + 2..title + 4],
        ["1m15 RETR /pub/file.iso", "1m15 CWD /new"].map(|line| format!(" {line}"))
    );
    view.press(Key::Escape);
    assert!(!texts(&mut view, (100, 20)).iter().any(|line| line.starts_with("--")));
}

#[test]
fn a_narrow_screen_leaves_columns_out_and_a_wide_one_has_all() {
    let mut view = view();
    let wide = texts(&mut view, (120, 10));
    assert!(
        wide[0].starts_with("3 sessions, 3 transfers, 1.5 kB/s down, 0 B/s up; by session"),
        "{}",
        wide[0]
    );
    assert!(wide[1].contains("WAITS FOR") && wide[1].trim_end().ends_with("FILE OR FOLDER"), "{}", wide[1]);
    assert!(
        wide[2].contains("    3 eve        192.0.2.3       ftp   1m15    3s RETR    client    down"),
        "{}",
        wide[2]
    );
    assert!(wide[2].trim_end().ends_with("100 B/s  10% /pub/file.iso"), "{}", wide[2]);
    let usual = texts(&mut view, (80, 10));
    assert!(
        usual[1].contains("IDLE") && usual[1].contains("WAITS FOR") && !usual[1].contains("FROM"),
        "{}",
        usual[1]
    );
    for width in [80, 40] {
        let narrow = texts(&mut view, (width, 10));
        assert!(narrow[2].contains("eve") && narrow[2].contains("10%"), "{}", narrow[2]);
        assert!(narrow.iter().all(|line| line.chars().count() <= width.max(HELP.len())), "{narrow:?}");
    }
    assert_eq!(last_part("/a/long/path/to/file", 10), "...to/file");
    assert_eq!(
        (first_part("alexander", 9), first_part("alexander", 5)),
        ("alexander".to_owned(), "alex+".to_owned())
    );
}

#[test]
fn the_selected_row_stays_on_a_small_screen() {
    let mut view = TopView::default();
    let sessions: Vec<Value> = (1..=50).map(|number| session(number, "u", 1)).collect();
    view.take(&json!({ "sessions": sessions }));
    view.press(Key::End);
    let lines = view.lines((80, 10));
    let marked: Vec<_> = lines.iter().skip(2).filter(|line| line.is_reversed).collect();
    assert!(lines.len() == 10 && marked.len() == 1 && marked[0].text.starts_with("   50 u"), "{lines:?}");
    view.press(Key::Home);
    assert!(view.lines((80, 10))[2].text.starts_with("    1 u"));
}

#[test]
fn a_paused_view_stays_as_it_is() {
    let mut view = view();
    view.press(Key::Char(' '));
    view.take(&json!({ "sessions": [] }));
    assert_eq!(users(&view).len(), 3);
    assert!(texts(&mut view, (100, 10))[0].ends_with("; paused"));
}
