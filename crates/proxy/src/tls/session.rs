//! A TLS session with a client, without its socket: records in, plaintext out, and the reverse.
//!
//! Encapsulates rustls' unbuffered API. Between two requests a session owns its keys and no buffers.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{Error, ProtocolVersion, ServerConfig};

use super::certificate::Certificate;
use super::certificates::{self, SelectedCertificate};

/// Limit of plaintext in one record (RFC 8446 §5.1), in bytes.
const RECORD: usize = 16 * 1024;
/// Plaintext encrypted at a time, in bytes: it stays in the processor's cache until it is sent.
const BATCH: usize = 4 * RECORD;
/// Maximum overhead of a record in bytes: header, nonce, content type, tag.
const RECORD_OVERHEAD: usize = 32;
/// Limit of records in a batch; joined pieces may end a record early.
const BATCH_RECORDS: usize = 2 * BATCH / RECORD + 1;
/// Bytes that may remain unsent when the next batch is encrypted behind them.
pub(crate) const HELD_BACK: usize = 4 * 1024;
/// Space for messages of rustls itself: key updates, alerts.
const CONTROL_MESSAGES: usize = 1024;

/// A TLS session with a client.
pub(crate) struct TlsSession {
    rustls: UnbufferedServerConnection,
    /// Incomplete records; mostly empty.
    incoming: BytesMut,
    /// Bytes to be sent before anything else; mostly empty.
    pub(crate) outgoing: BytesMut,
    /// The client has sent `close_notify`.
    has_ended: bool,
    has_failed: bool,
    said_goodbye: bool,
    /// Certificate selected for the client.
    shown: Option<SelectedCertificate>,
}

/// Buffer for encrypted records; one per thread.
pub(crate) struct RecordBuffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// Buffer in which small pieces are joined.
    joined: Vec<u8>,
}

impl RecordBuffer {
    pub(crate) fn new() -> Self {
        let room = BATCH + BATCH_RECORDS * RECORD_OVERHEAD + HELD_BACK + CONTROL_MESSAGES;
        Self {
            bytes: vec![0; room].into(),
            filled: 0,
            joined: Vec::with_capacity(RECORD),
        }
    }

    /// Encrypted bytes to be sent.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let room = self.bytes.get_mut(self.filled..self.filled + bytes.len());
        room.ok_or_else(|| broken("no room for records"))?
            .copy_from_slice(bytes);
        self.filled += bytes.len();
        Ok(())
    }
}

impl TlsSession {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self {
            rustls: UnbufferedServerConnection::new(config)?,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            has_ended: false,
            has_failed: false,
            said_goodbye: false,
            shown: None,
        })
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.rustls.is_handshaking()
    }

    /// Returns true after the client's `close_notify`.
    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns true if the server may send before the client's next message, as in TLS 1.3.
    pub(crate) fn may_answer_first(&self) -> bool {
        self.rustls.protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Returns true if this is a tls-alpn-01 validation.
    pub(crate) fn is_challenge(&self) -> bool {
        self.rustls.alpn_protocol() == Some(super::CHALLENGE)
    }

    /// Returns true if HTTP/2 was negotiated.
    pub(crate) fn has_agreed_on_http2(&self) -> bool {
        self.rustls.alpn_protocol() == Some(super::HTTP2)
    }

    /// Certificate that the client has presented, with its intermediates.
    pub(crate) fn client_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.rustls.peer_certificates()
    }

    /// Certificate selected for the client.
    #[cfg(test)]
    pub(crate) fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.shown.as_ref().map(|shown| &shown.certificate)
    }

    /// Certificate selected for the client, if it covers the host in its SNI.
    pub(crate) fn certificate_for_host(&self) -> Option<&Arc<Certificate>> {
        let shown = self.shown.as_ref().filter(|shown| shown.is_for_it);
        shown.map(|shown| &shown.certificate)
    }

    /// Copies the incomplete records to the front of a read buffer, so that the bytes read next follow them.
    pub(crate) fn put_kept(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let kept = self.incoming.len();
        // A record is smaller than the buffer, so a handshake message that fills it is invalid.
        if kept >= buffer.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        buffer[..kept].copy_from_slice(&self.incoming);
        Ok(kept)
    }

    /// Decrypts records, which begin with the incomplete ones from [`Self::put_kept`], and passes their plaintext
    /// to `deliver`. Replies go to `outgoing`, also the alert that refuses a record.
    pub(crate) fn receive(
        &mut self,
        records: &mut [u8],
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        if self.has_failed {
            return Err(broken("the session has failed"));
        }
        let mut used = 0;
        let received = loop {
            let UnbufferedStatus { mut discard, state } =
                self.rustls.process_tls_records(&mut records[used..]);
            let is_done = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        deliver(record.payload);
                    }
                    // Replies to earlier records were encoded before: there is nothing left to ask for.
                    used + discard == records.len()
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, &mut self.outgoing)?;
                    false
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    false
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.has_ended = true;
                    false
                }
                Ok(_) => true,
                Err(error) => break Err(error),
            };
            used += discard;
            if is_done {
                break Ok(());
            }
        };
        if received.is_err() {
            self.fail();
        }
        if self.shown.is_none() {
            self.shown = certificates::take_chosen();
        }
        let rest = &records[used.min(records.len())..];
        self.incoming = match rest {
            [] => BytesMut::new(),
            rest => rest.into(),
        };
        received
    }

    /// Stops the session and sends an alert.
    fn fail(&mut self) {
        self.has_failed = true;
        // rustls processes no input before its output is taken, so empty input yields the alert.
        while self.rustls.wants_write() {
            let UnbufferedStatus { state, .. } = self.rustls.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else {
                return;
            };
            if encode(&mut data, &mut self.outgoing).is_err() {
                return;
            }
        }
    }

    /// Encrypts one batch of these pieces, behind the bytes that have to be sent before it. Returns the number of
    /// plaintext bytes taken.
    pub(crate) fn encrypt(
        &mut self,
        pieces: &[IoSlice<'_>],
        out: &mut RecordBuffer,
    ) -> Result<usize, Error> {
        out.filled = 0;
        self.writing(|traffic, outgoing| {
            out.put(outgoing)?;
            *outgoing = BytesMut::new();
            encrypt_batch(traffic, pieces, out).map_err(|error| broken(&error.to_string()))
        })
    }

    /// Queues `close_notify`, once: nothing more will be sent.
    pub(crate) fn say_goodbye(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.said_goodbye, true)
            || self.has_failed
            || self.is_handshaking()
        {
            return Ok(());
        }
        self.writing(|traffic, outgoing| {
            let mut alert = [0; CONTROL_MESSAGES];
            let length = traffic.queue_close_notify(&mut alert);
            let length = length.map_err(|error| broken(&error.to_string()))?;
            outgoing.extend_from_slice(&alert[..length]);
            Ok(())
        })
    }

    /// Encodes the pending messages of rustls, which go before application data, then calls `encrypt`.
    fn writing<T>(
        &mut self,
        encrypt: impl FnOnce(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut BytesMut,
        ) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.has_failed {
            return Err(broken("the session has failed"));
        }
        loop {
            // The incomplete records are passed again, because rustls may remember offsets into them.
            let UnbufferedStatus { discard, state } =
                self.rustls.process_tls_records(&mut self.incoming);
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    return encrypt(&mut traffic, &mut self.outgoing);
                }
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, &mut self.outgoing)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.has_ended = true,
                _ => return Err(broken("nothing can be sent any more")),
            }
            self.incoming.advance(discard);
        }
    }
}

/// Encrypts pieces in whole records as long as there are any; small ones share a record.
fn encrypt_batch<D>(
    traffic: &mut WriteTraffic<'_, D>,
    pieces: &[IoSlice<'_>],
    out: &mut RecordBuffer,
) -> Result<usize, EncryptError> {
    let mut taken = 0;
    let mut pieces = pieces.iter().map(|piece| &piece[..]);
    let mut piece = pieces.next().unwrap_or_default();
    while taken < BATCH {
        let is_last = pieces.len() == 0;
        let room = BATCH - taken;
        let whole = piece.len().min(room);
        let whole = if is_last {
            whole
        } else {
            whole / RECORD * RECORD
        };
        let RecordBuffer {
            bytes,
            filled,
            joined,
        } = &mut *out;
        let plain = if whole > 0 {
            let (now, later) = piece.split_at(whole);
            piece = later;
            now
        } else if is_last {
            break;
        } else {
            let room = room.min(RECORD);
            joined.clear();
            loop {
                let (now, later) = piece.split_at(piece.len().min(room - joined.len()));
                joined.extend_from_slice(now);
                piece = later;
                if !piece.is_empty() {
                    break;
                }
                match pieces.next() {
                    Some(next) => piece = next,
                    None => break,
                }
            }
            &joined[..]
        };
        *filled += traffic.encrypt(plain, &mut bytes[*filled..])?;
        taken += plain.len();
    }
    Ok(taken)
}

fn encode<D>(data: &mut EncodeTlsData<'_, D>, out: &mut BytesMut) -> Result<(), Error> {
    if let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) {
        let at = out.len();
        out.resize(at + needed.required_size, 0);
        data.encode(&mut out[at..])
            .map_err(|error| broken(&error.to_string()))?;
    }
    Ok(())
}

fn broken(what: &str) -> Error {
    Error::General(what.to_owned())
}
