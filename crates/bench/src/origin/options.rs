//! Options of the origin: one entry each, with flag, help and setter.

use http::{HeaderValue, StatusCode};

use super::settings::{InvalidOption, PageSettings, Settings, WorkKind};
use super::values::{Fraction, SecondsRange, duration};

/// Maximum size of a page, in bytes.
const MAX_SIZE: u64 = 1 << 30;

/// Maximum number of workers.
const MAX_WORKERS: u64 = 10_000;

/// Maximum length of the queue.
const MAX_QUEUE: u64 = 1_000_000;

/// Option of the origin.
#[derive(Debug)]
pub struct OriginOption {
    /// Name: `--name` on the command line.
    pub name: &'static str,
    /// Placeholder of its value; empty for a switch.
    pub takes: &'static str,
    /// Help text.
    pub help: &'static str,
    sets: OptionScope,
}

type Setter<T> = fn(&mut T, &str) -> Result<(), String>;

#[derive(Debug)]
enum OptionScope {
    /// Page option, which a request may override: `/?size=1000`.
    Page(Setter<PageSettings>),
    /// Option of the whole application.
    Application(Setter<Settings>),
}

impl OriginOption {
    pub(super) fn set(&self, settings: &mut Settings, value: &str) -> Result<(), String> {
        match self.sets {
            OptionScope::Page(read) => read(&mut settings.page, value),
            OptionScope::Application(read) => read(settings, value),
        }
    }

    /// Returns whether a request may override it by a query parameter.
    pub fn per_request(&self) -> bool {
        matches!(self.sets, OptionScope::Page(_))
    }
}

/// Returns the page settings of a request, if its query overrides any.
pub(super) fn overridden(page: &PageSettings, query: &str) -> Result<Option<PageSettings>, String> {
    let mut own = None;
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let option = ORIGIN_OPTIONS.iter().find(|option| option.name == name);
        if let Some(OptionScope::Page(read)) = option.map(|option| &option.sets) {
            read(own.get_or_insert_with(|| page.clone()), value)
                .map_err(|what| format!("{name}: {what}, found `{value}`"))?;
        }
    }
    Ok(own)
}

/// All options except `--like`, which sets several of them.
pub const ORIGIN_OPTIONS: &[OriginOption] = &[
    OriginOption {
        name: "listen",
        takes: "ADDRESS",
        help: "Listen address; port 0 picks a free port [127.0.0.1:3000]",
        sets: OptionScope::Application(|settings, value| {
            settings.listen = value
                .parse()
                .map_err(|_| "expected an address and a port, such as 127.0.0.1:3000".to_owned())?;
            Ok(())
        }),
    },
    OriginOption {
        name: "work",
        takes: "DURATION",
        help: "Render time of a page [180ms]",
        sets: OptionScope::Page(|page, value| {
            page.work = duration(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "work-kind",
        takes: "cpu|sleep",
        help: "Render with CPU load or by sleeping [cpu]",
        sets: OptionScope::Page(|page, value| {
            page.work_kind = match value {
                "cpu" => WorkKind::Cpu,
                "sleep" => WorkKind::Sleep,
                _ => return Err("expected cpu or sleep".to_owned()),
            };
            Ok(())
        }),
    },
    OriginOption {
        name: "workers",
        takes: "N",
        help: "Concurrent renders [1]",
        sets: OptionScope::Application(|settings, value| {
            settings.workers = number(value, 1, MAX_WORKERS)? as usize;
            Ok(())
        }),
    },
    OriginOption {
        name: "queue",
        takes: "N",
        help: "Queue of requests waiting for a worker; above it: 503 [1000]",
        sets: OptionScope::Application(|settings, value| {
            settings.queue = number(value, 0, MAX_QUEUE)? as usize;
            Ok(())
        }),
    },
    OriginOption {
        name: "size",
        takes: "BYTES",
        help: "Size of a page in bytes [57000]",
        sets: OptionScope::Page(|page, value| {
            page.size = number(value, 0, MAX_SIZE)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "content-type",
        takes: "TYPE",
        help: "Content-Type: HTML, JSON, other: plain text [text/html; charset=utf-8]",
        sets: OptionScope::Page(|page, value| {
            page.content_type = field(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "status",
        takes: "STATUS",
        help: "Status code of pages [200]",
        sets: OptionScope::Page(|page, value| {
            page.status = status(value, 200)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "max-age",
        takes: "SECONDS",
        help: "Cache-Control: max-age; `5..60` picks a value per URL",
        sets: OptionScope::Page(|page, value| {
            page.max_age = Some(SecondsRange::read(value)?);
            Ok(())
        }),
    },
    OriginOption {
        name: "cache-control",
        takes: "TEXT",
        help: "Further Cache-Control directives",
        sets: OptionScope::Page(|page, value| {
            page.cache_control = Some(field(value)?);
            Ok(())
        }),
    },
    OriginOption {
        name: "etag",
        takes: "",
        help: "Send an ETag",
        sets: OptionScope::Page(|page, _| {
            page.etag = true;
            Ok(())
        }),
    },
    OriginOption {
        name: "last-modified",
        takes: "",
        help: "Send Last-Modified",
        sets: OptionScope::Page(|page, _| {
            page.last_modified = true;
            Ok(())
        }),
    },
    OriginOption {
        name: "not-modified-share",
        takes: "SHARE",
        help: "Fraction of URLs with an unchanging page, revalidated with 304 [0%]",
        sets: OptionScope::Page(|page, value| {
            page.unchanging = Fraction::read(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "vary",
        takes: "TEXT",
        help: "Send Vary",
        sets: OptionScope::Page(|page, value| {
            page.vary = Some(field(value)?);
            Ok(())
        }),
    },
    OriginOption {
        name: "set-cookie",
        takes: "TEXT",
        help: "Send Set-Cookie",
        sets: OptionScope::Page(|page, value| {
            page.set_cookie = Some(field(value)?);
            Ok(())
        }),
    },
    OriginOption {
        name: "echo",
        takes: "FIELDS",
        help: "Repeat these request header fields in the page",
        sets: OptionScope::Page(|page, value| {
            page.echo = value
                .split(',')
                .map(|name| name.trim().parse())
                .collect::<Result<_, _>>()
                .map_err(|_| "expected field names, such as Accept-Language,Cookie")?;
            Ok(())
        }),
    },
    OriginOption {
        name: "slow-body",
        takes: "DURATION",
        help: "Send the body in pieces over this time [0]",
        sets: OptionScope::Page(|page, value| {
            page.slow_body = duration(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "error-rate",
        takes: "SHARE",
        help: "Fraction of requests answered with an error [0%]",
        sets: OptionScope::Application(|settings, value| {
            settings.error_rate = Fraction::read(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "error-status",
        takes: "STATUS",
        help: "Status code of simulated errors [500]",
        sets: OptionScope::Application(|settings, value| {
            settings.error_status = status(value, 400)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "truncate-rate",
        takes: "SHARE",
        help: "Fraction of responses cut off halfway [0%]",
        sets: OptionScope::Application(|settings, value| {
            settings.truncate_rate = Fraction::read(value)?;
            Ok(())
        }),
    },
];

impl Settings {
    /// Sets an option by name.
    ///
    /// # Errors
    ///
    /// An error for an unknown option or an invalid value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), InvalidOption> {
        let wrong = |what: String| InvalidOption {
            option: name.to_owned(),
            what,
        };
        let option = ORIGIN_OPTIONS
            .iter()
            .find(|option| option.name == name)
            .ok_or_else(|| wrong("unknown option".to_owned()))?;
        option
            .set(self, value)
            .map_err(|what| wrong(format!("{what}, found `{value}`")))
    }
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected a number from {least} to {most}")),
    }
}

fn status(text: &str, least: u64) -> Result<StatusCode, String> {
    StatusCode::from_u16(number(text, least, 599)? as u16).map_err(|error| error.to_string())
}

fn field(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| "expected a valid header field value".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_asks_for_a_page_of_its_own() {
        let page = PageSettings::default();
        let own = overridden(&page, "a=b&size=10&workers=7&work=5ms").expect("it is fine");
        let own = own.expect("it asks for one");
        assert_eq!((own.size, own.work.as_millis()), (10, 5));
        assert!(overridden(&page, "a=b&workers=x").expect("fine").is_none());
        let message = overridden(&page, "size=x").expect_err("not a size");
        assert_eq!(
            message,
            "size: expected a number from 0 to 1073741824, found `x`"
        );
    }

    #[test]
    fn invalid_values_are_refused_with_an_example() {
        let check = |name: &str, value: &str, says: &str| {
            let message = Settings::default().set(name, value).expect_err(value);
            assert!(message.to_string().contains(says), "{message}");
        };
        check("listen", "3000", "such as 127.0.0.1:3000, found `3000`");
        check("work", "5", "such as 180ms");
        check("work-kind", "io", "cpu or sleep");
        check("workers", "0", "from 1 to");
        check("size", "-1", "from 0 to");
        check("max-age", "9..1", "5..60");
        check("status", "99", "from 200 to 599");
        check("error-rate", "200%", "at most 100%");
        check("vary", "a\nb", "header field");
        check("echo", "Cookie,", "such as Accept-Language,Cookie");
        check("wrk", "1", "unknown option");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ORIGIN_OPTIONS.iter().map(|option| option.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ORIGIN_OPTIONS.len());
    }
}
