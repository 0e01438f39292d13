//! The most requested pages, remembered in a file and warmed after a start.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use microcache_engine::cache::Scope;
use tokio::time::{MissedTickBehavior, interval};

use super::popularity::{MAX_PAGES, popular};
use super::visits::{WarmPage, WarmSource, start};
use crate::observe::Kind;
use crate::shared::{Active, Shared};

/// Interval at which the file is written.
const PERIOD: Duration = Duration::from_mins(5);
/// Limit of the file in bytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Warms the pages in the file of the configuration, and writes the file from then on.
pub(crate) async fn keep_hottest(active: &Active<Shared>) {
    if let Some(shared) = active.get()
        && let Some(file) = &shared.config.warm_start_file
    {
        let pages = read(file).inspect_err(|error| tell(&shared, file, "read", error));
        let pages = pages.unwrap_or_default();
        if !pages.is_empty() {
            // Nothing else is being warmed yet.
            let _ = start(
                &shared,
                "after the start".to_owned(),
                WarmSource::Pages(pages),
                None,
            );
        }
    }
    let mut periods = interval(PERIOD);
    periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
    periods.tick().await;
    loop {
        periods.tick().await;
        if let Some(shared) = active.get() {
            write_hottest(&shared).await;
        }
    }
}

/// Writes the file, if the configuration has one. Without any page, that of the last process stays.
pub(crate) async fn write_hottest(shared: &Shared) {
    let Some(file) = &shared.config.warm_start_file else {
        return;
    };
    let pages = popular(&shared.engine.cache, &[Scope::Everything]).await;
    let mut urls: Vec<_> = pages.into_iter().map(|page| page.url).collect();
    // Other variants of a page are not remembered.
    let mut known = std::collections::HashSet::new();
    urls.retain(|url| known.insert(url.clone()));
    if !urls.is_empty()
        && let Err(error) = write(file, &urls)
    {
        tell(shared, file, "written", &error);
    }
}

fn tell(shared: &Shared, file: &Path, what: &str, error: &io::Error) {
    let line = format!(
        "warm_start_file {} cannot be {what}: {error}",
        file.display()
    );
    shared.notices.say(Kind::WarmStart, "", line);
}

/// Reads the URLs. A file that is not there has none.
fn read(file: &Path) -> io::Result<Vec<WarmPage>> {
    let mut text = String::new();
    match fs::File::open(file) {
        Ok(file) => file.take(MAX_BYTES).read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let urls = text.lines().take(MAX_PAGES);
    Ok(urls.map(|url| WarmPage::from(url.to_owned())).collect())
}

/// Replaces the file in one step. Only its user can read it, for URLs may be confidential.
fn write(file: &Path, urls: &[String]) -> io::Result<()> {
    let mut beside = file.to_owned().into_os_string();
    beside.push(".new");
    let beside = Path::new(&beside);
    // A leftover of a process that was killed.
    let _ = fs::remove_file(beside);
    let mut options = OpenOptions::new();
    let mut new = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(beside)?;
    for url in urls {
        writeln!(new, "{url}")?;
    }
    new.sync_all()?;
    fs::rename(beside, file)
}

#[cfg(test)]
mod tests {
    use microcache_testkit::Folder;

    use super::*;

    #[test]
    fn the_file_is_replaced_as_a_whole_and_read_as_far_as_it_counts() {
        let folder = Folder::new();
        let file = folder.path().join("hottest");
        assert_eq!(read(&file).expect("none"), []);
        let urls = |count: usize| {
            (0..count)
                .map(|n| format!("http://a/{n}"))
                .collect::<Vec<_>>()
        };
        fs::write(folder.path().join("hottest.new"), "a leftover").expect("written");
        for count in [2, MAX_PAGES + 1] {
            write(&file, &urls(count)).expect("written");
            assert_eq!(read(&file).expect("urls").len(), count.min(MAX_PAGES));
        }
        assert_eq!(read(&file).expect("urls")[1].url, "http://a/1");
        assert!(!folder.path().join("hottest.new").exists());
        fs::write(&file, b"\xff").expect("written");
        assert!(read(&file).is_err() && read(folder.path()).is_err());
        assert!(write(&folder.path().join("none/hottest"), &urls(1)).is_err());
    }
}
