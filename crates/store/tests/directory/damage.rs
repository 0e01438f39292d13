//! Damaged files and unusable directories.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use microcache_store::{Directory, DirectoryError, OwnershipError, PutOutcome, SharedTier, Tier};
use tokio::runtime::Handle;

use crate::place::{HOLD, LONG, Place, entry, found, id, mine};

#[tokio::test]
async fn any_damage_to_a_file_is_a_miss_and_can_be_overwritten() {
    let place = Place::new();
    let tier = place.open();
    let file = place.file(id(1));
    let body: Vec<u8> = (0..300_u16).map(|n| n as u8).collect();
    tier.put(id(1), entry(b"head", &body), LONG, None)
        .await
        .unwrap();
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&file, &bytes).unwrap();
        assert_eq!(found(tier.get(id(1)).await), None, "bit of byte {at}");
        assert!(!file.exists(), "byte {at}");
        fs::write(&file, &whole[..at]).unwrap();
        assert_eq!(found(tier.get(id(1)).await), None, "{at} bytes");
    }
    assert_eq!(tier.stats().corrupt, 2 * whole.len() as u64);
    // The record of another id does not count.
    fs::write(place.file(id(1)), &whole).unwrap();
    fs::create_dir_all(place.file(id(2)).parent().unwrap()).unwrap();
    fs::rename(place.file(id(1)), place.file(id(2))).unwrap();
    let token = mine(tier.get_or_claim(id(2), HOLD).await);
    let put = tier.put(id(2), entry(b"head", b"body"), LONG, Some(token));
    assert_eq!(put.await, Ok(PutOutcome::Stored));
    assert!(found(tier.get(id(2)).await).is_some());
}

#[tokio::test]
async fn special_files_are_neither_followed_waited_for_nor_found() {
    let place = Place::new();
    let tier = place.open();
    tier.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    let elsewhere = place.directory.join("elsewhere");
    fs::rename(place.file(id(1)), &elsewhere).unwrap();
    symlink(&elsewhere, place.file(id(1))).unwrap();
    assert_eq!(
        found(tier.get(id(1)).await),
        None,
        "a link to a whole record"
    );
    assert!(elsewhere.exists());
    let made = Command::new("mkfifo").arg(place.file(id(1))).status();
    assert!(made.unwrap().success());
    assert_eq!(found(tier.get(id(1)).await), None, "a pipe");
    fs::create_dir(place.file(id(1))).unwrap();
    assert_eq!(found(tier.get(id(1)).await), None, "a folder");
    let _ = tier.put(id(1), entry(b"head", b"body"), LONG, None).await;
    fs::remove_dir(place.file(id(1))).unwrap();
    tier.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    assert!(found(tier.get(id(1)).await).is_some());

    // A symbolic link in place of a folder is not followed either.
    let folder = place.file(id(1)).parent().unwrap().to_owned();
    fs::rename(&folder, place.directory.join("moved")).unwrap();
    symlink(place.directory.join("moved"), &folder).unwrap();
    assert!(tier.get(id(1)).await.is_err());
    assert!(
        tier.put(id(1), entry(b"head", b"new"), LONG, None)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn files_are_accessible_to_their_user_only() {
    let place = Place::new();
    let tier = place.open();
    tier.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    tier.append_to_log(0, vec![], b"beginning"[..].into())
        .await
        .unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.directory), 0o700);
    assert_eq!(mode(&place.home()), 0o700);
    assert_eq!(mode(place.file(id(1)).parent().unwrap()), 0o700);
    assert_eq!(mode(&place.file(id(1))), 0o600);
    assert_eq!(mode(&place.home().join("log")), 0o600);
    assert_eq!(mode(&place.home().join("size")), 0o600);
}

#[tokio::test]
async fn a_directory_writable_by_others_is_refused_and_a_readable_one_closed() {
    let place = Place::new();
    drop(place.open());
    let mode = |mode| fs::set_permissions(place.home(), Permissions::from_mode(mode)).unwrap();
    for open in [0o770, 0o702] {
        mode(open);
        let refused = Directory::open(place.settings(), &Handle::current());
        let said = refused.expect_err("others may write").to_string();
        let home = place.home().display().to_string();
        let remedy = format!("`chmod go-w {home}`");
        assert!(said.contains(&remedy), "{said}");
    }
    mode(0o755);
    drop(place.open());
    let about = fs::metadata(place.home()).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn errors_name_the_path() {
    let place = Place::new();
    let tier = place.open();
    fs::write(place.file(id(1)).parent().unwrap(), "no folder").unwrap();
    assert!(tier.get(id(1)).await.is_err());
    let said = tier.stats().degraded.concat();
    let directory = place.directory.display().to_string();
    assert!(said.starts_with(&directory), "{said}");
}

#[tokio::test]
async fn a_directory_that_is_none_or_another_user_s_is_refused() {
    let place = Place::new();
    fs::write(&place.directory, "a file").unwrap();
    let refused = Directory::open(place.settings(), &Handle::current());
    let said = refused.expect_err("it is a file").to_string();
    assert!(said.contains("cannot be used"), "{said}");
    fs::remove_file(&place.directory).unwrap();
    // Only root can change the owner.
    fs::create_dir(&place.directory).unwrap();
    if chown(&place.directory, Some(65_534), None).is_ok() {
        let refused = Directory::open(place.settings(), &Handle::current());
        let refused = refused.expect_err("it is another user's");
        assert!(matches!(
            refused,
            DirectoryError::Untrusted(OwnershipError::Foreign { owner: 65_534, .. })
        ));
    }
}

#[tokio::test]
async fn a_directory_to_which_others_may_write_is_refused_and_left_as_it_is() {
    for mode in [0o777, 0o770, 0o1777] {
        let place = Place::new();
        fs::create_dir(&place.directory).unwrap();
        fs::set_permissions(&place.directory, Permissions::from_mode(mode)).unwrap();
        let refused = Directory::open(place.settings(), &Handle::current());
        let said = refused.expect_err("others may write").to_string();
        let remedy = format!("`chmod go-w {}`", place.directory.display());
        assert!(said.contains(&remedy), "{said}");
        assert_eq!(fs::read_dir(&place.directory).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_directory_that_is_removed_is_made_again() {
    let place = Place::new();
    let tier = place.open();
    tier.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    let token = mine(tier.get_or_claim(id(2), HOLD).await);
    fs::remove_dir_all(&place.directory).unwrap();
    assert_eq!(found(tier.get(id(1)).await), None);
    let put = tier.put(id(2), entry(b"head", b"body"), LONG, Some(token));
    assert_eq!(put.await, Ok(PutOutcome::Superseded));
    tier.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    assert!(found(tier.get(id(1)).await).is_some());
}

#[tokio::test]
async fn a_directory_that_is_read_only_is_read() {
    let place = Place::new();
    let tier = place.open();
    tier.put(id(1), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    tier.append_to_log(0, vec![], b"beginning"[..].into())
        .await
        .unwrap();
    let set = |mode: u32| {
        for path in [place.home(), place.file(id(1)).parent().unwrap().to_owned()] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    };
    set(0o500);
    assert!(found(tier.get_or_claim(id(1), HOLD).await).is_some());
    let page = tier
        .read_log(0, 0, b"beginning"[..].into())
        .await
        .expect("it is there");
    assert_eq!(page.records.len(), 1);
    // Root can write there nevertheless.
    let _ = tier.put(id(2), entry(b"head", b"body"), LONG, None).await;
    set(0o700);
}
