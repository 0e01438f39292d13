//! QUERY (RFC 10008): a safe request whose content is part of the cache key.
//!
//! The content is received whole before anything is looked up, and no place of the origin is held meanwhile. Every later
//! fetch of the entry is due to a request with the same content, and sends that one's: nothing is kept with the entry.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use microcache_policy::Detail;

use crate::body::{Body, BodyError, Frame};
use crate::cache::fetch_outcome::Failure;
use crate::content::{HeldContent, MAX_CONTENT, QueryContent};
use crate::message::{ForwardedRequest, Response};
use crate::origin::OriginError;
use crate::request::engine::Engine;
use crate::request::failure::NoResponse;
use crate::request::plan::DirectFetch;
use crate::request::serve::Served;

impl Engine {
    /// Returns room for the content of a request that passes only because it is not known yet.
    pub(crate) fn room_for_content(
        &self,
        plan: &DirectFetch,
        incoming: &ForwardedRequest,
    ) -> Option<HeldContent> {
        let is_query = incoming.head.method.as_str() == "QUERY"
            && incoming.content.is_none()
            && plan.why.detail == Some(Detail::Method)
            && !self.routes[plan.why.route].answers_at_once;
        let length = incoming.length.filter(|_| is_query)?;
        let fits = (1..=MAX_CONTENT).contains(&length);
        fits.then(|| self.content_budget.hold(incoming.network, length))?
    }

    /// Receives the content, and answers the request from the cache or the origin.
    pub(crate) async fn ask_with_content(
        self: Arc<Self>,
        plan: Box<DirectFetch>,
        mut incoming: ForwardedRequest,
        held: HeldContent,
    ) -> Result<Response, NoResponse> {
        let bytes = match received(&mut incoming.body, held.bytes()).await {
            Ok(bytes) => bytes,
            Err(error) => {
                let failure = Failure::Origin(OriginError::RequestBody(error));
                return Err(NoResponse::new(failure, plan.why.forward));
            }
        };
        incoming.body = Body::Empty;
        let content = QueryContent::new(bytes, &mut incoming.outgoing, held);
        incoming.content = Some(Arc::new(content));
        match self.look_up_again(&incoming) {
            Served::Now(response) => Ok(response),
            Served::NowAndRefresh(response, refresh) => {
                self.refresh(refresh, incoming.for_renewal());
                Ok(response)
            }
            Served::Failed(failed) => Err(failed),
            Served::Fetch(plan) => self.ask(plan, incoming).await,
        }
    }
}

/// The whole of a body of this length.
async fn received(body: &mut Body, length: usize) -> Result<Bytes, BodyError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Frame::Data(data) = frame? {
            if data.len() > length - bytes.len() {
                return Err(BodyError::TooLarge);
            }
            bytes.extend_from_slice(&data);
        }
    }
    if bytes.len() < length {
        return Err(BodyError::Incomplete);
    }
    Ok(bytes.freeze())
}
