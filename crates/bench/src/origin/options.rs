//! The options of the application, each in one entry: its flag, its help, and what it sets.

use http::{HeaderValue, StatusCode};

use super::settings::{PageSettings, Settings, WorkKind};
use super::values::{Seconds, Share, duration};

/// The largest page.
const MAX_SIZE: u64 = 1 << 30;

/// The most threads that render.
const MAX_WORKERS: u64 = 10_000;

/// The most requests that may wait for a worker.
const MAX_QUEUE: u64 = 1_000_000;

/// One option.
#[derive(Debug)]
pub struct OriginOption {
    /// Its name: `--name` on the command line.
    pub name: &'static str,
    /// What it takes; empty if nothing.
    pub takes: &'static str,
    /// What it does.
    pub help: &'static str,
    sets: Sets,
}

type Read<T> = fn(&mut T, &str) -> Result<(), String>;

#[derive(Debug)]
enum Sets {
    /// Something of the page, which a request may set for itself: `/?size=1000`.
    Page(Read<PageSettings>),
    /// Something of the whole application.
    Application(Read<Settings>),
}

impl OriginOption {
    pub(super) fn set(&self, settings: &mut Settings, value: &str) -> Result<(), String> {
        match self.sets {
            Sets::Page(read) => read(&mut settings.page, value),
            Sets::Application(read) => read(settings, value),
        }
    }

    /// Whether a request may set it for itself, as a parameter of its url.
    pub fn per_request(&self) -> bool {
        matches!(self.sets, Sets::Page(_))
    }
}

/// The page that a request asks for, if its url asks for one of its own.
pub(super) fn adjusted(page: &PageSettings, query: &str) -> Result<Option<PageSettings>, String> {
    let mut own = None;
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let option = ORIGIN_OPTIONS.iter().find(|option| option.name == name);
        if let Some(Sets::Page(read)) = option.map(|option| &option.sets) {
            read(own.get_or_insert_with(|| page.clone()), value)
                .map_err(|what| format!("{name}: {what}, found `{value}`"))?;
        }
    }
    Ok(own)
}

/// All options. `--like`, which sets many of them, is not among them.
pub const ORIGIN_OPTIONS: &[OriginOption] = &[
    OriginOption {
        name: "listen",
        takes: "ADDRESS",
        help: "Where to listen; port 0 takes a free one [127.0.0.1:3000]",
        sets: Sets::Application(|settings, value| {
            settings.listen = value
                .parse()
                .map_err(|_| "expected an address and a port, such as 127.0.0.1:3000".to_owned())?;
            Ok(())
        }),
    },
    OriginOption {
        name: "work",
        takes: "DURATION",
        help: "What each render costs [180ms]",
        sets: Sets::Page(|page, value| {
            page.work = duration(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "work-kind",
        takes: "cpu|sleep",
        help: "Whether a render burns CPU time or only takes its time [cpu]",
        sets: Sets::Page(|page, value| {
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
        help: "How many renders go on at a time [1]",
        sets: Sets::Application(|settings, value| {
            settings.workers = number(value, 1, MAX_WORKERS)? as usize;
            Ok(())
        }),
    },
    OriginOption {
        name: "queue",
        takes: "N",
        help: "How many requests may wait for a worker; more get 503 [1000]",
        sets: Sets::Application(|settings, value| {
            settings.queue = number(value, 0, MAX_QUEUE)? as usize;
            Ok(())
        }),
    },
    OriginOption {
        name: "size",
        takes: "BYTES",
        help: "The length of a page [57000]",
        sets: Sets::Page(|page, value| {
            page.size = number(value, 0, MAX_SIZE)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "content-type",
        takes: "TYPE",
        help: "Its type: HTML, JSON, or else plain text [text/html; charset=utf-8]",
        sets: Sets::Page(|page, value| {
            page.content_type = field(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "status",
        takes: "STATUS",
        help: "The status of a page [200]",
        sets: Sets::Page(|page, value| {
            page.status = status(value, 200)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "max-age",
        takes: "SECONDS",
        help: "Cache-Control: max-age; `5..60` gives each url its own",
        sets: Sets::Page(|page, value| {
            page.max_age = Some(Seconds::read(value)?);
            Ok(())
        }),
    },
    OriginOption {
        name: "cache-control",
        takes: "TEXT",
        help: "What else Cache-Control says",
        sets: Sets::Page(|page, value| {
            page.cache_control = Some(field(value)?);
            Ok(())
        }),
    },
    OriginOption {
        name: "etag",
        takes: "",
        help: "Send an ETag",
        sets: Sets::Page(|page, _| {
            page.etag = true;
            Ok(())
        }),
    },
    OriginOption {
        name: "last-modified",
        takes: "",
        help: "Send Last-Modified",
        sets: Sets::Page(|page, _| {
            page.last_modified = true;
            Ok(())
        }),
    },
    OriginOption {
        name: "not-modified-share",
        takes: "SHARE",
        help: "The share of urls whose page never changes, so that they answer 304 [0%]",
        sets: Sets::Page(|page, value| {
            page.unchanging = Share::read(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "vary",
        takes: "TEXT",
        help: "Send Vary",
        sets: Sets::Page(|page, value| {
            page.vary = Some(field(value)?);
            Ok(())
        }),
    },
    OriginOption {
        name: "set-cookie",
        takes: "TEXT",
        help: "Send Set-Cookie",
        sets: Sets::Page(|page, value| {
            page.set_cookie = Some(field(value)?);
            Ok(())
        }),
    },
    OriginOption {
        name: "echo",
        takes: "FIELDS",
        help: "Say in the page what the request had in these fields",
        sets: Sets::Page(|page, value| {
            page.echo = value
                .split(',')
                .map(|name| name.trim().parse())
                .collect::<Result<_, _>>()
                .map_err(|_| "expected names of fields, such as Accept-Language,Cookie")?;
            Ok(())
        }),
    },
    OriginOption {
        name: "slow-body",
        takes: "DURATION",
        help: "Send the page little by little, over this time [0]",
        sets: Sets::Page(|page, value| {
            page.slow_body = duration(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "error-rate",
        takes: "SHARE",
        help: "The share of requests that fail, evenly spread [0%]",
        sets: Sets::Application(|settings, value| {
            settings.error_rate = Share::read(value)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "error-status",
        takes: "STATUS",
        help: "What they fail with [500]",
        sets: Sets::Application(|settings, value| {
            settings.error_status = status(value, 400)?;
            Ok(())
        }),
    },
    OriginOption {
        name: "truncate-rate",
        takes: "SHARE",
        help: "The share of pages that end in the middle, evenly spread [0%]",
        sets: Sets::Application(|settings, value| {
            settings.truncate_rate = Share::read(value)?;
            Ok(())
        }),
    },
];

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
    HeaderValue::from_str(text).map_err(|_| "expected text that a header field can hold".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_asks_for_a_page_of_its_own() {
        let page = PageSettings::default();
        let own = adjusted(&page, "a=b&size=10&workers=7&work=5ms").expect("it is fine");
        let own = own.expect("it asks for one");
        assert_eq!((own.size, own.work.as_millis()), (10, 5));
        assert!(adjusted(&page, "a=b&workers=x").expect("fine").is_none());
        let told = adjusted(&page, "size=x").expect_err("not a size");
        assert_eq!(
            told,
            "size: expected a number from 0 to 1073741824, found `x`"
        );
    }

    #[test]
    fn what_makes_no_sense_is_told_with_what_would() {
        let check = |name: &str, value: &str, says: &str| {
            let told = Settings::default().set(name, value).expect_err(value);
            assert!(told.to_string().contains(says), "{told}");
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
        check("wrk", "1", "no such option");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ORIGIN_OPTIONS.iter().map(|option| option.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ORIGIN_OPTIONS.len());
    }
}
