//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::feed::Wish;
use super::figures::{Listed, Order};
use super::screen::{Mode, Screen};

/// Lines of a leap.
const LEAP: usize = 10;
/// Letters of a filter.
const LONGEST_FILTER: usize = 200;

/// What is to be done after a key.
pub(super) enum Next {
    Nothing,
    Ask(Wish),
    Leave,
    Interrupt,
}

pub(super) fn press(screen: &mut Screen, key: KeyEvent) -> Next {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Next::Interrupt,
            _ => Next::Nothing,
        };
    }
    match screen.mode.clone() {
        Mode::Looking => look(screen, key.code),
        Mode::Filtering => filter(screen, key.code),
        Mode::Confirming(url) => confirm(screen, key.code, url),
    }
}

fn look(screen: &mut Screen, key: KeyCode) -> Next {
    screen.told = None;
    match key {
        KeyCode::Char('q') => return Next::Leave,
        KeyCode::Esc if screen.filter.is_empty() => return Next::Leave,
        KeyCode::Esc => screen.filter.clear(),
        KeyCode::Char('/') => screen.mode = Mode::Filtering,
        KeyCode::Tab => screen.list(screen.listed.next()),
        KeyCode::Char('u') => screen.list(Listed::Urls),
        KeyCode::Char('r') => screen.list(Listed::Routes),
        KeyCode::Char('e') => screen.list(Listed::Errors),
        KeyCode::Char('s') if screen.listed == Listed::Urls => {
            return sort(screen, screen.order.next());
        }
        KeyCode::Char(digit @ '1'..='4') if screen.listed == Listed::Urls => {
            let order = Order::ALL[digit as usize - '1' as usize];
            return sort(screen, order);
        }
        KeyCode::Up | KeyCode::Char('k') => screen.marked = screen.marked.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => screen.marked += 1,
        KeyCode::PageUp => screen.marked = screen.marked.saturating_sub(LEAP),
        KeyCode::PageDown => screen.marked += LEAP,
        KeyCode::Home => screen.marked = 0,
        KeyCode::End => screen.marked = usize::MAX,
        KeyCode::Char('p') | KeyCode::Delete => ask_about_purge(screen),
        _ => {}
    }
    screen.stay_in_the_list();
    Next::Nothing
}

fn sort(screen: &mut Screen, order: Order) -> Next {
    screen.order = order;
    screen.marked = 0;
    Next::Ask(Wish::Order(order))
}

fn ask_about_purge(screen: &mut Screen) {
    match screen.marked_url() {
        _ if screen.listed != Listed::Urls => {}
        Some(url) if url.is_cut => {
            screen.told = Some("this url is too long to be known whole".to_owned());
        }
        Some(url) => screen.mode = Mode::Confirming(url.name.clone()),
        None => {}
    }
}

fn filter(screen: &mut Screen, key: KeyCode) -> Next {
    match key {
        KeyCode::Enter => screen.mode = Mode::Looking,
        KeyCode::Esc => {
            screen.filter.clear();
            screen.mode = Mode::Looking;
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
    Next::Nothing
}

/// Only `y` purges.
fn confirm(screen: &mut Screen, key: KeyCode, url: String) -> Next {
    screen.mode = Mode::Looking;
    if matches!(key, KeyCode::Char('y' | 'Y')) {
        return Next::Ask(Wish::Purge(url));
    }
    screen.told = Some("nothing was purged".to_owned());
    Next::Nothing
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
        let mut asked = Vec::new();
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                letter => KeyCode::Char(letter),
            };
            match press(screen, KeyEvent::from(code)) {
                Next::Ask(Wish::Purge(url)) => asked.push(format!("purge {url}")),
                Next::Ask(Wish::Order(order)) => asked.push(format!("order {order:?}")),
                Next::Leave => asked.push("leave".to_owned()),
                Next::Interrupt => asked.push("interrupt".to_owned()),
                Next::Nothing => {}
            }
        }
        asked
    }

    #[test]
    fn a_line_is_purged_when_that_is_confirmed_and_not_otherwise() {
        assert_eq!(typed(&mut screen(), "jpy"), ["purge http://a/Two"]);
        for refusal in ["jpn", "jp\n", "jp\x1b", "jpq", "py"] {
            let asked = typed(&mut screen(), refusal);
            let expected: &[&str] = if refusal == "py" {
                &["purge http://a/one"]
            } else {
                &[]
            };
            assert_eq!(asked, expected, "{refusal:?}");
        }
        let mut cut = screen();
        assert!(typed(&mut cut, "jjpy").is_empty(), "{:?}", cut.told);
    }

    #[test]
    fn what_is_typed_after_a_slash_narrows_the_list_and_does_nothing_else() {
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
    fn orders_go_round_and_the_mark_stays_with_its_url() {
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
            ("r", Listed::Routes),
            ("e", Listed::Errors),
            ("u", Listed::Urls),
        ] {
            assert!(typed(&mut screen, "jj").is_empty());
            assert!(typed(&mut screen, key).is_empty());
            assert_eq!((screen.listed, screen.marked), (listed, 0));
        }
        press(&mut screen, KeyEvent::from(KeyCode::Tab));
        assert_eq!(screen.listed, Listed::Routes);
        assert!(typed(&mut screen, "s1py").is_empty());
        assert_eq!(screen.mode, Mode::Looking);
        press(&mut screen, KeyEvent::from(KeyCode::Tab));
        press(&mut screen, KeyEvent::from(KeyCode::Tab));
        assert_eq!(typed(&mut screen, "py"), ["purge http://a/one"]);
    }

    #[test]
    fn ctrl_c_ends_it_in_every_mode() {
        for before in ["", "/x", "p"] {
            let mut screen = screen();
            typed(&mut screen, before);
            let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert!(
                matches!(press(&mut screen, key), Next::Interrupt),
                "{before}"
            );
        }
    }
}
