use bytes::Bytes;
use microcache_policy::vary::VaryNames;
use triomphe::ThinArc;

use super::*;

const FIELDS: &[u8] = b"A: 1\r\nB: 2\r\n";

fn lifetime() -> Lifetime {
    Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one")
}

fn stored(body: &[u8]) -> Stored {
    let body = Bytes::copy_from_slice(body).into();
    Stored::new(
        b"key",
        200,
        Fields::new(FIELDS),
        body,
        lifetime(),
        Time::default(),
    )
}

#[test]
fn one_claim_per_pause() {
    let one = stored(b"");
    let now = Time::from_secs(100);
    let state = one.revalidation();
    assert!(state.claim(now, 1000));
    assert!(!state.claim(now.plus(999), 1000));
    assert!(state.claim(now.plus(1000), 1000));
    assert_eq!(state.demand.load(Ordering::Relaxed), 3);
}

#[test]
fn small_bodies_are_part_of_the_block_and_others_are_not_copied() {
    for length in [0, 1, Stored::COMPACT, Stored::COMPACT + 1] {
        let body = Bytes::from(vec![b'x'; length]);
        let one = Stored::new(
            b"key",
            200,
            Fields::new(FIELDS),
            body.clone().into(),
            lifetime(),
            Time::default(),
        );
        assert_eq!((one.key(), one.fields().as_block()), (&b"key"[..], FIELDS));
        assert_eq!(one.body(), Some(&body[..]));
        assert_eq!(one.body_len(), length as u64);
        assert_eq!(one.shared_body().as_ref(), Some(&body));
        assert_eq!(one.separate_body().as_ref(), Some(&body));
        let is_copied = one.body().map(<[u8]>::as_ptr) != Some(body.as_ptr());
        assert_eq!(is_copied, length <= Stored::COMPACT, "{length}");
        assert_eq!(one.own_size(), FIELDS.len() + length);
        assert!(one.weight() >= one.own_size() + 3);
    }
}

#[test]
fn a_shared_body_keeps_the_block_and_a_separate_one_does_not() {
    let one = stored(b"body");
    let count = |one: &Stored| ThinArc::strong_count(&one.0);
    let separate = one.separate_body();
    assert_eq!(count(&one), 1);
    let shared = one.shared_body();
    assert_eq!(count(&one), 2);
    assert_eq!(shared, separate);
    drop(shared);
    assert_eq!(count(&one), 1);
}

#[test]
fn a_change_is_not_seen_by_others() {
    let one = stored(b"body");
    let address = |one: &Stored| one.0.slice.as_ptr();
    let tags: TagNumbers = [7].into_iter().collect();
    let other = one.clone().with_tags(tags.clone());
    assert_eq!((one.tags().is_empty(), other.tags()), (true, &tags));
    assert_ne!(address(&one), address(&other));
    // Nothing is copied if there are none.
    let before = address(&other);
    let other = other.with_purges_known([1; LOG_COPIES]);
    assert_eq!(
        (address(&other), other.purges_known()),
        (before, [1; LOG_COPIES])
    );
    let other = other
        .with_tags(TagNumbers::NONE)
        .with_purges_known([0; LOG_COPIES]);
    assert!(other.head().rare.is_none(), "it is like any other again");
    assert_eq!(address(&other), before);
}

#[test]
fn copies_have_the_encodings_and_the_counters_but_no_state_of_a_revalidation() {
    let one = stored(b"body").with_purges_known([1; LOG_COPIES]);
    one.count_use();
    one.set_purges_checked(9);
    one.record_use(Time::from_secs(1));
    let state = one.revalidation();
    assert!(state.claim(Time::from_secs(1), 1000));
    let encoded = one.encoded();
    let copy = one.with_lifetime(lifetime());
    assert_eq!((copy.uses(), copy.purges_checked()), (1, 9));
    assert_eq!(copy.last_use(), one.last_use());
    let known = copy.known_encoded().expect("it has the same");
    assert!(Arc::ptr_eq(known.bodies(), encoded.bodies()));
    let state = copy.revalidation();
    assert_eq!(state.demand.load(Ordering::Relaxed), 0);
    assert_eq!(copy.purges_known(), [0; LOG_COPIES]);
    assert_eq!(copy.body(), one.body());
}

#[test]
fn times_are_exact_whether_they_fit_into_the_head_or_not() {
    let usual = lifetime();
    let late = usual.received_at(Time::from_millis(1 << 40));
    let never = usual.received_at(Time::from_millis(1 << 60));
    for (lifetime, began, is_compact) in [
        (usual, 0, true),
        (late, (1 << 40) - 5, true),
        (late, 1 << 20, false),
        (usual, 5, false),
        (never, 1 << 60, false),
    ] {
        let began = Time::from_millis(began);
        let one = Stored::new(
            b"",
            200,
            Fields::default(),
            Content::default(),
            lifetime,
            began,
        );
        assert_eq!((one.lifetime(), one.began()), (lifetime, began));
        assert_eq!(one.head().rare.is_none(), is_compact);
        let other = one.with_lifetime(usual);
        assert_eq!((other.lifetime(), other.began()), (usual, began));
    }
}

#[test]
fn variants_are_kept_apart_from_those_of_an_earlier_leader() {
    let (first, second) = (stored(b"1"), stored(b"2"));
    let leader = second.leading(None, Box::new([first]));
    assert_eq!(leader.others().len(), 1);
    let alone = leader.clone().leading(None, Box::default());
    assert_eq!((alone.others().len(), leader.others().len()), (0, 1));
    assert!(alone.head().rare.is_none());
}

#[test]
fn only_a_varying_response_has_a_selection() {
    let none = stored(b"").with_vary(VaryNames::default(), b"x");
    assert!(none.vary().is_empty() && none.selection().is_empty());
    let vary = microcache_policy::vary::of_response(
        Fields::new(b"Vary: Accept-Language\r\n"),
        &Rules::default().vary_ignored,
    );
    let one = stored(b"").with_vary(vary.names(), b"de");
    assert_eq!(
        (one.vary().as_bytes(), one.selection()),
        (&b"accept-language"[..], &b"de"[..])
    );
}

#[test]
fn copies_of_a_page_share_its_pieces() {
    let body = b"a<esi:include src=\"/b\"/>c";
    let one = stored(body);
    assert!(one.pieces().is_none());
    let (weight, size) = (one.weight(), one.own_size());
    let pieces = PagePieces::of(body).map(Arc::new);
    let one = one.with_pieces(pieces.clone());
    let copies = [
        one.with_lifetime(lifetime()),
        one.with_fields(Fields::default()),
        one.with_body(one.content()),
    ];
    for copy in copies {
        let is_same = copy.pieces().zip(pieces.as_ref());
        assert!(is_same.is_some_and(|(copy, one)| Arc::ptr_eq(copy, one)));
    }
    let extra = pieces.map_or(0, |pieces| pieces.heap_size());
    assert_eq!(one.own_size(), size + extra);
    assert!(one.weight() >= weight + extra);
    assert!(one.with_pieces(None).head().rare.is_none());
}
