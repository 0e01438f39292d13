//! The answer of a FastCGI application: any split of the bytes gives the same streams, content comes only from records
//! that a plain model finds too, and a head that is accepted is read the same with HTTP's own parser.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use microcache_policy::FieldIndex;
use microcache_wire::fastcgi::{AnswerPart, RecordDecoder, parse_head};
use microcache_wire::h1::{Framing, HeadLimits, parse_response};

/// Output, errors and end that a decoder found before it refused the rest.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    output: Vec<u8>,
    errors: Vec<u8>,
    end: Option<Result<usize, &'static str>>,
}

fuzz_target!(|input: &[u8]| {
    let whole = read(input, input.len());
    for step in [1, 2, 3, 7, 64] {
        assert_eq!(read(input, step), whole, "in pieces of {step}");
    }
    let model = model(input);
    assert_eq!(
        (&model.output, &model.errors),
        (&whole.output, &whole.errors)
    );
    assert_eq!(
        model.end.map(Result::ok),
        whole.end.map(Result::ok),
        "it ends where the model does"
    );
    heads_agree(&whole.output);
    heads_agree(input);
});

fn read(input: &[u8], step: usize) -> Read {
    let (mut decoder, mut buf, mut read) =
        (RecordDecoder::default(), BytesMut::new(), Read::default());
    let (mut pieces, mut fed) = (input.chunks(step.max(1)), 0);
    loop {
        match decoder.decode(&mut buf) {
            Ok(AnswerPart::Output(bytes)) => read.output.extend_from_slice(&bytes),
            Ok(AnswerPart::ErrorOutput(bytes)) => read.errors.extend_from_slice(&bytes),
            Ok(AnswerPart::NeedMore) => match pieces.next() {
                Some(piece) => {
                    fed += piece.len();
                    buf.extend_from_slice(piece);
                }
                None => return read,
            },
            Ok(AnswerPart::End) => {
                read.end = Some(Ok(fed - buf.len()));
                return read;
            }
            Err(reason) => {
                read.end = Some(Err(reason));
                return read;
            }
        }
    }
}

/// Reads record by record; content of a record that is cut off counts.
fn model(mut input: &[u8]) -> Read {
    let (mut read, mut taken, mut output_ended) = (Read::default(), 0, false);
    while let [version, kind, id_1, id_0, high, low, padding, _, rest @ ..] = input {
        let length = usize::from(*high) << 8 | usize::from(*low);
        let right = *version == 1
            && (*id_1, *id_0) == (0, 1)
            && match kind {
                3 => length == 8,
                6 => !output_ended || length == 0,
                7 => true,
                _ => false,
            };
        if !right {
            read.end = Some(Err(""));
            return read;
        }
        output_ended |= *kind == 6 && length == 0;
        let content = &rest[..length.min(rest.len())];
        match kind {
            6 => read.output.extend_from_slice(content),
            7 => read.errors.extend_from_slice(content),
            _ if content.len() == 8 && content[4] != 0 => {
                read.end = Some(Err(""));
                return read;
            }
            _ => {}
        }
        let size = length + usize::from(*padding);
        if rest.len() < size {
            return read;
        }
        taken += 8 + size;
        if *kind == 3 {
            read.end = Some(Ok(taken));
            return read;
        }
        input = &rest[size..];
    }
    read
}

/// A CGI head is a field section: behind a status line HTTP's parser must accept it with the same fields.
fn heads_agree(bytes: &[u8]) {
    let limits = HeadLimits::default();
    let (mut index, mut other) = (FieldIndex::default(), FieldIndex::default());
    let Ok(Some((head, length))) = parse_head(bytes, false, &limits, &mut index) else {
        return;
    };
    assert!((200..=599).contains(&head.status) && head.framing != Framing::Chunked);
    let line = format!("HTTP/1.1 {}\r\n", head.status);
    let text = [line.as_bytes(), &bytes[..length]].concat();
    let wide = HeadLimits {
        head: limits.head + line.len(),
        ..limits
    };
    let (theirs, taken) = parse_response(&text, false, &wide, &mut other)
        .expect("HTTP accepts it")
        .expect("it is complete");
    assert_eq!(taken, text.len());
    assert_eq!(theirs.fields.as_block(), head.fields.as_block());
    assert_eq!((theirs.framing, theirs.length), (head.framing, head.length));
}
