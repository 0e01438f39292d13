//! Traces in the public format oracleGeneral of libCacheSim: for each request 24 bytes, which are the time in seconds
//! (u32), the id of the object (u64), its size (u32), and the number of its next request (i64, -1 if there is none).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::random::Random;
use crate::trace::{Catalogue, Trace};

const RECORD: usize = 24;
/// Requests in each second of a written trace.
const RATE: usize = 100;

/// Writes a trace.
pub(crate) fn write(path: &Path, trace: &Trace) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let next = trace.next_requests();
    for (number, (&object, &next)) in trace.requests.iter().zip(&next).enumerate() {
        // Numbers of requests begin at 1.
        let next = if next == usize::MAX {
            -1
        } else {
            next.cast_signed() as i64 + 1
        };
        file.write_all(&((number / RATE) as u32).to_le_bytes())?;
        file.write_all(&u64::from(object).to_le_bytes())?;
        file.write_all(&trace.catalogue.sizes[object as usize].to_le_bytes())?;
        file.write_all(&next.to_le_bytes())?;
    }
    file.flush()
}

/// Reads a trace. The size of an object is that at its first request; its cost comes from its id. Requests of size zero
/// are left out, as libCacheSim does: their objects take no space.
pub(crate) fn read(path: &Path) -> io::Result<Trace> {
    let in_file =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(in_file)?;
    read_records(BufReader::new(file)).map_err(in_file)
}

fn read_records(mut file: impl Read) -> io::Result<Trace> {
    let mut objects = HashMap::new();
    let mut trace = Trace {
        catalogue: Catalogue::default(),
        requests: Vec::new(),
    };
    let (mut record, mut offset) = (Vec::with_capacity(RECORD), 0);
    while file.by_ref().take(RECORD as u64).read_to_end(&mut record)? > 0 {
        let Ok(whole) = <&[u8; RECORD]>::try_from(&record[..]) else {
            return Err(damage(&format!(
                "the record at byte {offset} ends after {} of {RECORD} bytes",
                record.len()
            )));
        };
        let (id, size) = id_and_size(whole);
        if size > 0 {
            let object = *objects.entry(id).or_insert_with(|| {
                let micros = Random::new(id).micros(1.0, 2000.0);
                trace.catalogue.add(size, micros)
            });
            trace.requests.push(object);
        }
        record.clear();
        offset += RECORD;
    }
    if trace.requests.is_empty() {
        return Err(damage("no record has a size"));
    }
    Ok(trace)
}

/// The error of a file that is not as it should be.
fn damage(what: &str) -> io::Error {
    let what = format!("{what}: fetch the file again, and unpack it (zstd -d) if it is compressed");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn id_and_size(record: &[u8; RECORD]) -> (u64, u32) {
    let [_, _, _, _, id @ .., s0, s1, s2, s3, _, _, _, _, _, _, _, _] = record;
    (
        u64::from_le_bytes(*id),
        u32::from_le_bytes([*s0, *s1, *s2, *s3]),
    )
}
