//! Concatenation of length-prefixed components, which is unambiguous.

use smallvec::{Array, SmallVec};

use crate::fields::Fields;

/// Length of a length prefix.
pub(crate) const LEN_BYTES: usize = 4;

/// The length prefix of a component.
pub(crate) fn length(component: &[u8]) -> [u8; LEN_BYTES] {
    (component.len() as u32).to_le_bytes()
}

/// Appends one component.
pub(crate) fn push_component<A: Array<Item = u8>>(out: &mut SmallVec<A>, bytes: &[u8]) {
    push_with_len(out, |out| out.extend_from_slice(bytes));
}

/// Appends the output of `write` as one component.
pub(crate) fn push_with_len<A: Array<Item = u8>>(
    out: &mut SmallVec<A>,
    write: impl FnOnce(&mut SmallVec<A>),
) {
    let start = out.len() + LEN_BYTES;
    out.extend_from_slice(&[0; LEN_BYTES]);
    write(out);
    let len = (out.len() - start) as u32;
    out[start - LEN_BYTES..start].copy_from_slice(&len.to_le_bytes());
}

/// Appends the presence of a field and its value, with several lines combined (RFC 9110 §5.3).
pub(crate) fn push_field<A: Array<Item = u8>>(
    out: &mut SmallVec<A>,
    fields: Fields<'_>,
    name: &str,
) {
    let mut lines = fields.all(name);
    let Some(first) = lines.next() else {
        out.push(0);
        return;
    };
    out.push(1);
    push_with_len(out, |out| {
        out.extend_from_slice(first);
        for line in lines {
            out.extend_from_slice(b", ");
            out.extend_from_slice(line);
        }
    });
}

/// Reads the first component of `rest` and advances it. `None` if `rest` is truncated.
pub(crate) fn take_component<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk::<LEN_BYTES>()?;
    let (component, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *rest = after;
    Some(component)
}
