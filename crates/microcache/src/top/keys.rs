//! The actions of keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::feed::Request;
use super::figures::{ListKind, Order};
use super::screen::{Mode, Screen};

/// Lines per page key.
const LEAP: usize = 10;
/// The longest filter, in characters.
const LONGEST_FILTER: usize = 200;

/// The keys that the last line of the screen has no room for.
const KEYS: &str =
    "u urls  r routes  e errors  n nodes  j k PgUp PgDn Home End  Del purge  Esc quit";

/// The action that follows a key.
pub(super) enum Action {
    Nothing,
    Send(Request),
    Quit,
    Interrupt,
}

pub(super) fn press(screen: &mut Screen, key: KeyEvent) -> Action {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Action::Interrupt,
            _ => Action::Nothing,
        };
    }
    match screen.mode.clone() {
        Mode::Browse => look(screen, key.code),
        Mode::Filter => filter(screen, key.code),
        Mode::Confirm(url) => confirm(screen, key.code, url),
    }
}

fn look(screen: &mut Screen, key: KeyCode) -> Action {
    screen.message = None;
    match key {
        KeyCode::Char('q') => return Action::Quit,
        KeyCode::Esc if screen.filter.is_empty() => return Action::Quit,
        KeyCode::Esc => screen.filter.clear(),
        KeyCode::Char('?') => screen.message = Some(KEYS.to_owned()),
        KeyCode::Char('/') => screen.mode = Mode::Filter,
        KeyCode::Tab => return list(screen, screen.listed.next()),
        KeyCode::Char('u') => return list(screen, ListKind::Urls),
        KeyCode::Char('r') => return list(screen, ListKind::Routes),
        KeyCode::Char('e') => return list(screen, ListKind::Errors),
        KeyCode::Char('n') => return list(screen, ListKind::Nodes),
        KeyCode::Char('s') if screen.listed == ListKind::Urls => {
            return sort(screen, screen.order.next());
        }
        KeyCode::Char(digit @ '1'..='4') if screen.listed == ListKind::Urls => {
            let order = Order::ALL[digit as usize - '1' as usize];
            return sort(screen, order);
        }
        KeyCode::Up | KeyCode::Char('k') => screen.marked = screen.marked.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => screen.marked += 1,
        KeyCode::PageUp => screen.marked = screen.marked.saturating_sub(LEAP),
        KeyCode::PageDown => screen.marked += LEAP,
        KeyCode::Home => screen.marked = 0,
        KeyCode::End => screen.marked = usize::MAX,
        KeyCode::Char('p') | KeyCode::Delete => confirm_purge(screen),
        _ => {}
    }
    screen.stay_in_the_list();
    Action::Nothing
}

fn list(screen: &mut Screen, listed: ListKind) -> Action {
    screen.list(listed);
    Action::Send(Request::List(listed))
}

fn sort(screen: &mut Screen, order: Order) -> Action {
    screen.order = order;
    screen.marked = 0;
    Action::Send(Request::Order(order))
}

fn confirm_purge(screen: &mut Screen) {
    match screen.marked_url() {
        _ if screen.listed != ListKind::Urls => {}
        Some(url) if url.is_cut => {
            screen.message = Some("this URL is too long: only its beginning is known".to_owned());
        }
        Some(url) => screen.mode = Mode::Confirm(url.name.clone()),
        None => {}
    }
}

fn filter(screen: &mut Screen, key: KeyCode) -> Action {
    match key {
        KeyCode::Enter => screen.mode = Mode::Browse,
        KeyCode::Esc => {
            screen.filter.clear();
            screen.mode = Mode::Browse;
        }
        KeyCode::Backspace => {
            screen.filter.pop();
        }
        KeyCode::Char(letter) if screen.filter.len() < LONGEST_FILTER => {
            screen.filter.push(letter);
        }
        _ => {}
    }
    screen.marked = 0;
    Action::Nothing
}

/// Purges on `y` only.
fn confirm(screen: &mut Screen, key: KeyCode, url: String) -> Action {
    screen.mode = Mode::Browse;
    if matches!(key, KeyCode::Char('y' | 'Y')) {
        return Action::Send(Request::Purge(url));
    }
    screen.message = Some("nothing was purged".to_owned());
    Action::Nothing
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::super::feed::News;
    use super::*;

    fn screen() -> Screen {
        let mut screen = Screen::new("http://127.0.0.1:8081");
        let urls = json!({"by": "requests", "urls": [
            {"url": "http://a/one", "requests": 3},
            {"url": "http://a/Two", "requests": 2},
            {"url": "http://a/three", "truncated": true, "requests": 1},
        ]});
        screen.hear(News::Urls(Ok(urls)), Instant::now());
        screen
    }

    fn typed(screen: &mut Screen, keys: &str) -> Vec<String> {
        let mut actions = Vec::new();
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                letter => KeyCode::Char(letter),
            };
            match press(screen, KeyEvent::from(code)) {
                Action::Send(Request::Purge(url)) => actions.push(format!("purge {url}")),
                Action::Send(Request::Order(order)) => actions.push(format!("order {order:?}")),
                Action::Quit => actions.push("leave".to_owned()),
                Action::Interrupt => actions.push("interrupt".to_owned()),
                Action::Send(Request::List(_)) | Action::Nothing => {}
            }
        }
        actions
    }

    #[test]
    fn a_line_is_purged_when_that_is_confirmed_and_not_otherwise() {
        assert_eq!(typed(&mut screen(), "jpy"), ["purge http://a/Two"]);
        for refusal in ["jpn", "jp\n", "jp\x1b", "jpq", "py"] {
            let actions = typed(&mut screen(), refusal);
            let expected: &[&str] = if refusal == "py" {
                &["purge http://a/one"]
            } else {
                &[]
            };
            assert_eq!(actions, expected, "{refusal:?}");
        }
        let mut cut = screen();
        assert!(typed(&mut cut, "jjpy").is_empty(), "{:?}", cut.message);
    }

    #[test]
    fn keys_after_a_slash_narrow_the_list_and_do_nothing_else() {
        let mut screen = screen();
        assert!(typed(&mut screen, "/two\n").is_empty());
        assert_eq!(
            screen.marked_url().map(|url| url.name.as_str()),
            Some("http://a/Two")
        );
        assert_eq!(typed(&mut screen, "py"), ["purge http://a/Two"]);
        assert_eq!(typed(&mut screen, "\x1bq"), ["leave"]);
        assert_eq!(screen.shown().count(), 3);
        assert!(typed(&mut screen, "/nothing\npy").is_empty());
    }

    #[test]
    fn orders_cycle_and_the_selection_stays_on_its_url() {
        let mut screen = screen();
        assert_eq!(
            typed(&mut screen, "ssss3"),
            [
                "order Bytes",
                "order Misses",
                "order OriginTime",
                "order Requests",
                "order Misses"
            ]
        );
        typed(&mut screen, "1j");
        let other = json!({"by": "requests", "urls": [{"url": "http://a/x"}, {"url": "http://a/y"}, {"url": "http://a/Two"}]});
        screen.hear(News::Urls(Ok(other)), Instant::now());
        assert_eq!(
            screen.marked_url().map(|url| url.name.as_str()),
            Some("http://a/Two")
        );
        let late = json!({"by": "bytes", "urls": []});
        screen.hear(News::Urls(Ok(late)), Instant::now());
        assert_eq!(screen.shown().count(), 3, "an answer to another question");
        let fewer = json!({"by": "requests", "urls": [{"url": "http://a/x"}]});
        screen.hear(News::Urls(Ok(fewer)), Instant::now());
        assert_eq!(screen.marked, 0);
    }

    #[test]
    fn lists_go_round_and_only_urls_are_sorted_and_purged() {
        let mut screen = screen();
        for (key, listed) in [
            ("r", ListKind::Routes),
            ("e", ListKind::Errors),
            ("n", ListKind::Nodes),
            ("u", ListKind::Urls),
        ] {
            assert!(typed(&mut screen, "jj").is_empty());
            assert!(typed(&mut screen, key).is_empty());
            assert_eq!((screen.listed, screen.marked), (listed, 0));
        }
        press(&mut screen, KeyEvent::from(KeyCode::Tab));
        assert_eq!(screen.listed, ListKind::Routes);
        assert!(typed(&mut screen, "s1py").is_empty());
        assert_eq!(screen.mode, Mode::Browse);
        for _ in 0..3 {
            press(&mut screen, KeyEvent::from(KeyCode::Tab));
        }
        assert_eq!(typed(&mut screen, "py"), ["purge http://a/one"]);
    }

    #[test]
    fn a_question_mark_shows_all_keys_until_the_next_one() {
        let mut screen = screen();
        assert!(typed(&mut screen, "?").is_empty());
        assert_eq!(screen.message.as_deref(), Some(KEYS));
        assert!(KEYS.len() <= 80);
        assert!(typed(&mut screen, "j").is_empty());
        assert_eq!(screen.message, None);
    }

    #[test]
    fn ctrl_c_ends_it_in_every_mode() {
        for before in ["", "/x", "p"] {
            let mut screen = screen();
            typed(&mut screen, before);
            let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert!(
                matches!(press(&mut screen, key), Action::Interrupt),
                "{before}"
            );
        }
    }
}
