//! Documents and the Mercure hub.

use microcache_push::SyncPolicy;
use microcache_testkit::Folder;

use super::super::mistake::Mistakes;
use super::super::*;
use super::{mistakes, read};

#[test]
fn documents_have_one_keeper() {
    let shared = "origin = \"http://a\"\npush = \"/live/\"\npush_redis = \"redis://u:pw@a\"\n";
    let fleet = read(shared).push.redis;
    assert_eq!(fleet.urls, ["redis://u:pw@a"]);
    assert!(!format!("{fleet:?}").contains("pw"));
    for other in ["push_directory = \"none\"", "push_sync = \"never\""] {
        let name = other.split(' ').next().unwrap_or_default();
        let text = mistakes(&format!("{shared}{other}"));
        let expected = format!("`{name}` has no effect with `push_redis`");
        assert!(text.contains(&expected), "{text}");
    }
    let config = read(&format!("{shared}push_history = 1000"));
    assert_eq!(config.push.settings.history, 1000);
    let text = mistakes(&format!("{shared}push_history = 1001"));
    assert!(text.contains("at most 1000 with `push_redis`"), "{text}");
    let alone = "origin = \"http://a\"\npush = \"/live/\"\npush_directory = \"none\"\n";
    assert!(read(alone).push.redis.urls.is_empty());
    let text = mistakes(&format!("{alone}push_redis_cluster = true"));
    assert!(
        text.contains("`push_redis_cluster` has no effect without `push_redis`"),
        "{text}"
    );
}

#[test]
fn a_hub_keeps_its_history_where_a_directory_is_named_or_documents_are() {
    let folder = Folder::new();
    let key = folder.write("key", "a secret of thirty-two characters");
    let hub = format!("origin = \"http://a\"\nmercure_publisher_key_file = {key:?}\n");
    let of = |more: &str| {
        let text = format!("{hub}{more}");
        let (mut config, mut mistakes) = (read(&text), Mistakes::default());
        config.push.read_files(&mut mistakes);
        config
    };
    let kept = |more: &str| of(more).push.mercure.kept;
    let there = |sync| Some(UpdateStore::Directory(PathBuf::from("/a"), sync));
    assert_eq!(kept(""), None);
    assert_eq!(kept("push_directory = \"none\""), None);
    assert_eq!(kept("push_directory = \"/a\""), there(SyncPolicy::Always));
    assert_eq!(
        kept("push_directory = \"/a\"\npush_sync = \"never\""),
        there(SyncPolicy::Never)
    );
    assert_eq!(
        kept("push = \"/live/\"\npush_directory = \"/a\""),
        there(SyncPolicy::Always)
    );
    assert_eq!(kept("push = \"/live/\"\npush_directory = \"none\""), None);
    // Shared with other nodes, with documents or without.
    let shared = "push_redis = \"redis://a\"\n";
    for documents in ["", "push = \"/live/\"\n"] {
        let config = of(&format!("{documents}{shared}"));
        let is_shared = matches!(config.push.mercure.kept, Some(UpdateStore::Redis(_)));
        assert!(is_shared, "{documents}");
        assert_eq!(config.push.settings.fleet.is_some(), !documents.is_empty());
        let text = mistakes(&format!("{hub}{documents}{shared}push_directory = \"/a\""));
        let expected = "`push_directory` has no effect with `push_redis`";
        assert!(text.contains(expected), "{text}");
    }
    let text = mistakes(&format!("{hub}push_history = 2"));
    assert!(text.contains("`push_history` has no effect"), "{text}");
    // A hub begins to keep it, and ends, with the process.
    let (without, with) = (of(""), of("push_directory = \"/a\""));
    for (before, after) in [(&without, &with), (&with, &without)] {
        let report = before.needs_restart_for(after).expect("it does");
        assert!(report.to_string().contains("`push_directory`"), "{report}");
    }
    assert!(
        with.needs_restart_for(&of("push_directory = \"/a\"\nmercure_anonymous = true"))
            .is_none()
    );
}
