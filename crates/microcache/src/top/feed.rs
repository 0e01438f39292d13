//! The source of the figures: a thread polls the admin interface of a running server, so that keys work
//! while it does not answer.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::figures::{ListKind, Order};
use crate::cli::AdminAddress;
use crate::operate::client::{Client, RequestError};

/// The polling interval.
const PERIOD: Duration = Duration::from_secs(1);
/// The number of URLs requested; the filter applies to these.
const URLS: usize = 100;
/// The number of errors requested.
const ERRORS: usize = 100;
/// The length of the queue of news.
const NEWS: usize = 16;

/// An answer of the server.
pub(super) enum News {
    /// The answer to `GET /v1/stats`.
    Stats(Value),
    /// The answer to `GET /v1/top`, or its error.
    Urls(Result<Value, String>),
    /// The answer to `GET /v1/errors`.
    Errors(Value),
    /// The answer to `GET /v1/nodes`.
    Nodes(Value),
    /// The server cannot be reached.
    Lost(String),
    /// The outcome of a purge.
    Purged(String),
}

/// A request of the operator.
pub(super) enum Request {
    /// Another order of the URLs.
    Order(Order),
    /// Another list on the screen.
    List(ListKind),
    /// The purge of a URL, with all its variants.
    Purge(String),
}

pub(super) struct Feed {
    news: Receiver<News>,
    requests: Sender<Request>,
}

impl Feed {
    /// Polls once, and starts the thread if that succeeds.
    pub(super) fn start(server: &AdminAddress) -> Result<Self, RequestError> {
        let client = Client::new(server)?;
        let first = client.get("/v1/stats", &[])?;
        let (to, news) = mpsc::sync_channel(NEWS);
        let (requests, wanted) = mpsc::channel();
        // There is room for it.
        let _ = to.try_send(News::Stats(first));
        thread::spawn(move || Poller { client, to }.run(&wanted));
        Ok(Self { news, requests })
    }

    pub(super) fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    pub(super) fn send(&self, request: Request) {
        // The thread ends with this.
        let _ = self.requests.send(request);
    }
}

struct Poller {
    client: Client,
    to: SyncSender<News>,
}

impl Poller {
    fn run(&self, wanted: &Receiver<Request>) {
        let mut order = Order::Requests;
        let mut listed = ListKind::Urls;
        self.tell(self.urls(order));
        self.tell_errors();
        let mut next = Instant::now() + PERIOD;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            match wanted.recv_timeout(left) {
                Ok(Request::Order(wanted)) => {
                    order = wanted;
                    self.tell(self.urls(order));
                }
                Ok(Request::List(wanted)) => {
                    listed = wanted;
                    self.tell_nodes(listed);
                }
                Ok(Request::Purge(url)) => self.tell(News::Purged(self.purge(&url))),
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + PERIOD;
                    match self.client.get("/v1/stats", &[]) {
                        Ok(answer) => {
                            self.tell(News::Stats(answer));
                            self.tell(self.urls(order));
                            self.tell_errors();
                            self.tell_nodes(listed);
                        }
                        Err(why) => self.tell(News::Lost(words(why))),
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn urls(&self, order: Order) -> News {
        let parameters = [
            ("by", order.parameter().to_owned()),
            ("limit", URLS.to_string()),
        ];
        News::Urls(self.client.get("/v1/top", &parameters).map_err(words))
    }

    /// Publishes the errors; a server without that list has none to show.
    fn tell_errors(&self) {
        let limit = [("limit", ERRORS.to_string())];
        if let Ok(answer) = self.client.get("/v1/errors", &limit) {
            self.tell(News::Errors(answer));
        }
    }

    /// Publishes the nodes while they are listed: the server reads them from its tier.
    fn tell_nodes(&self, listed: ListKind) {
        if listed == ListKind::Nodes
            && let Ok(answer) = self.client.get("/v1/nodes", &[])
        {
            self.tell(News::Nodes(answer));
        }
    }

    fn purge(&self, url: &str) -> String {
        match self.client.post("/v1/purges", &json!({ "url": url })) {
            Ok(_) => format!("purged {url}"),
            Err(why) => format!("not purged: {}", words(why)),
        }
    }

    /// Queues news for drawing; without a receiver it is dropped.
    fn tell(&self, news: News) {
        let _ = self.to.send(news);
    }
}

fn words(why: RequestError) -> String {
    match why {
        RequestError::Refused(why) | RequestError::Unreached(why) => why,
    }
}
