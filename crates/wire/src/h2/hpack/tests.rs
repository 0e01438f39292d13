//! The examples of RFC 7541, appendix C, and laws.

use proptest::prelude::*;

use super::*;

type Field = (String, String);

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Field>, BadBlock> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(block, &mut Scratch::default(), |name, value| {
        fields.push((text(name), text(value)));
    })?;
    Ok(fields)
}

fn lines(text: &str) -> Vec<Field> {
    let line = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a field");
        (name.to_owned(), value.to_owned())
    };
    text.lines().map(|it| line(it.trim())).collect()
}

/// C.3 and C.4: requests on one connection, plain and Huffman-coded.
#[test]
fn requests_one_after_the_other() {
    let first = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com";
    let second = &format!("{first}\ncache-control: no-cache");
    let third = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
                 custom-key: custom-value";
    for blocks in [
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
    ] {
        let mut decoder = Decoder::default();
        for (block, expected) in blocks.iter().zip([first, second, third]) {
            assert_eq!(decoded(&mut decoder, &hex(block)), Ok(lines(expected)));
        }
    }
}

/// C.5 and C.6: responses with a table of 256 bytes, which evicts entries.
#[test]
fn responses_in_a_small_table() {
    let first = ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
                 location: https://www.example.com";
    let second = &first.replace("302", "307");
    let third = ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
                 location: https://www.example.com\ncontent-encoding: gzip\n\
                 set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    for blocks in [
        [
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d\
             546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f\
             6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b\
             2076657273696f6e3d31",
        ],
        [
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c7\
             8f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335\
             dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ],
    ] {
        let mut decoder = Decoder::default();
        assert_eq!(decoded(&mut decoder, &hex("3fe101")), Ok(Vec::new()));
        for (block, expected) in blocks.iter().zip([first, second, third]) {
            assert_eq!(decoded(&mut decoder, &hex(block)), Ok(lines(expected)));
        }
    }
}

/// C.2: each field representation by itself.
#[test]
fn every_form_of_a_field() {
    for (block, expected) in [
        (
            "400a637573746f6d2d6b65790d637573746f6d2d686561646572",
            "custom-key: custom-header",
        ),
        ("040c2f73616d706c652f70617468", ":path: /sample/path"),
        ("100870617373776f726406736563726574", "password: secret"),
        ("82", ":method: GET"),
    ] {
        assert_eq!(
            decoded(&mut Decoder::default(), &hex(block)),
            Ok(lines(expected))
        );
    }
}

#[test]
fn malformed_blocks_are_refused() {
    for block in [
        // Index 0, indices behind both tables, a truncated index.
        "80",
        "be",
        "ff00",
        "ff",
        "7f0000",
        // A table size above the limit, and one behind a field.
        "3fe21f",
        "8220",
        // Truncated strings and invalid codes.
        "40",
        "4005616263",
        "400161",
        "40016105",
        "408101ff",
        "0081ff00",
        // A length above the limit.
        "007fffffffff7f",
    ] {
        let refused = decoded(&mut Decoder::default(), &hex(block));
        assert!(refused.is_err(), "{block}: {refused:?}");
    }
}

fn encoded(encoder: &mut Encoder, status: u16, fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out, status);
    for (name, value) in fields {
        encoder.field(&mut out, name.as_bytes(), value.as_bytes());
    }
    out
}

#[test]
fn a_repeated_field_takes_one_byte() {
    let mut encoder = Encoder::default();
    let fields = lines("Server: an application\nContent-Type: text/html\nX-Of-Its-Own: some value");
    let lengths = [0; 3].map(|_| encoded(&mut encoder, 200, &fields).len());
    assert!(lengths[1] < lengths[0], "{lengths:?}");
    assert_eq!(lengths[2], 4, "{lengths:?}");
    let secret = lines("Set-Cookie: session=1");
    let lengths = [0; 3].map(|_| encoded(&mut encoder, 200, &secret).len());
    assert_eq!(lengths[0], lengths[2], "it never goes into the table");
}

#[test]
fn a_limit_of_the_peer_is_respected_and_announced() {
    let mut encoder = Encoder::default();
    let fields = lines("server: an application\ncontent-type: text/html");
    for _ in 0..3 {
        encoded(&mut encoder, 200, &fields);
    }
    encoder.allow(0);
    encoder.allow(1 << 30);
    let block = encoded(&mut encoder, 200, &fields);
    assert!(block.starts_with(&hex("203fe11f88")), "{block:x?}");
    encoder.allow(0);
    for _ in 0..3 {
        let block = encoded(&mut encoder, 200, &fields);
        let read = decoded(&mut Decoder::default(), &block).expect("nothing refers to a table");
        assert_eq!(read.len(), 3);
    }
}

proptest! {
    #[test]
    fn encoded_blocks_are_decoded(
        heads in proptest::collection::vec(
            (100u16..600, proptest::collection::vec(("[a-zA-Z-]{1,20}", "[ -~]{0,60}"), 0..12), 0usize..5000),
            1..12,
        ),
        again in 1usize..4,
    ) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for (status, fields, allowed) in heads {
            encoder.allow(allowed);
            for _ in 0..again {
                let block = encoded(&mut encoder, status, &fields);
                let mut expected = vec![(":status".to_owned(), status.to_string())];
                let lower = |(name, value): &Field| (name.to_ascii_lowercase(), value.clone());
                expected.extend(fields.iter().map(lower));
                prop_assert_eq!(decoded(&mut decoder, &block), Ok(expected));
            }
        }
    }

    #[test]
    fn a_static_block_is_valid_on_every_connection(
        status in 100u16..600,
        fields in proptest::collection::vec(("[a-zA-Z-]{1,20}", "[ -~]{0,60}"), 0..12),
        single in ".{0,300}",
        others in proptest::collection::vec(("[a-z]{1,2}", "[a-z]{0,2}"), 0..30),
    ) {
        let mut block = StaticBlock::new(status);
        let mut expected = vec![(":status".to_owned(), status.to_string())];
        for (name, value) in &fields {
            block.field(name.as_bytes(), value.as_bytes());
            expected.push((name.to_ascii_lowercase(), value.clone()));
        }
        expected.push(("x-single".to_owned(), single.clone()));
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        encoder.allow(0);
        encoder.allow(TABLE_SIZE);
        for _ in 0..3 {
            let mut out = Vec::new();
            encoder.begin_with(&mut out, &block);
            Encoder::single(&mut out, b"X-Single", |out| out.extend_from_slice(single.as_bytes()));
            prop_assert_eq!(decoded(&mut decoder, &out), Ok(expected.clone()));
            // The table is that of the other blocks alone.
            let block = encoded(&mut encoder, 200, &others);
            let read = decoded(&mut decoder, &block);
            prop_assert_eq!(read.map(|read| read[1..].to_vec()), Ok(others.clone()));
        }
    }

    #[test]
    fn any_bytes_are_fields_or_refused(blocks: Vec<Vec<u8>>) {
        let mut decoder = Decoder::default();
        for block in blocks {
            if decoded(&mut decoder, &block).is_err() {
                break;
            }
        }
    }
}
