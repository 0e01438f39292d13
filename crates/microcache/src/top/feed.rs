//! Where the numbers come from: the interface of a running server, asked by a thread of its own so that
//! keys are obeyed while it does not answer.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::figures::Order;
use crate::cli::Operated;
use crate::operate::client::{Client, Failed};

/// The time from one look to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// As many urls as are asked for; the filter looks among these.
const URLS: usize = 100;
/// As many errors as are asked for.
const ERRORS: usize = 100;
/// News that wait to be drawn.
const NEWS: usize = 16;

/// What has been heard.
pub(super) enum News {
    /// What `GET /v1/stats` says.
    Stats(Value),
    /// What `GET /v1/top` says, or why it does not.
    Urls(Result<Value, String>),
    /// What `GET /v1/errors` says.
    Errors(Value),
    /// Nobody answers.
    Lost(String),
    /// What became of a purge.
    Purged(String),
}

/// What the operator wants.
pub(super) enum Wish {
    /// The urls in another order.
    Order(Order),
    /// A url purged, with all its variants.
    Purge(String),
}

pub(super) struct Feed {
    news: Receiver<News>,
    wishes: Sender<Wish>,
}

impl Feed {
    /// Looks a first time, and goes on if that went well.
    pub(super) fn start(server: &Operated) -> Result<Self, Failed> {
        let client = Client::new(server)?;
        let first = client.get("/v1/stats", &[])?;
        let (to, news) = mpsc::sync_channel(NEWS);
        let (wishes, wanted) = mpsc::channel();
        // There is room for it.
        let _ = to.try_send(News::Stats(first));
        thread::spawn(move || Looking { client, to }.go_on(&wanted));
        Ok(Self { news, wishes })
    }

    pub(super) fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    pub(super) fn ask(&self, wish: Wish) {
        // The thread ends with this.
        let _ = self.wishes.send(wish);
    }
}

struct Looking {
    client: Client,
    to: SyncSender<News>,
}

impl Looking {
    fn go_on(&self, wanted: &Receiver<Wish>) {
        let mut order = Order::Requests;
        self.tell(self.urls(order));
        self.tell_errors();
        let mut next = Instant::now() + PERIOD;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            match wanted.recv_timeout(left) {
                Ok(Wish::Order(wanted)) => {
                    order = wanted;
                    self.tell(self.urls(order));
                }
                Ok(Wish::Purge(url)) => self.tell(News::Purged(self.purge(&url))),
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + PERIOD;
                    match self.client.get("/v1/stats", &[]) {
                        Ok(told) => {
                            self.tell(News::Stats(told));
                            self.tell(self.urls(order));
                            self.tell_errors();
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

    /// A server that does not say them has none to show.
    fn tell_errors(&self) {
        let limit = [("limit", ERRORS.to_string())];
        if let Ok(told) = self.client.get("/v1/errors", &limit) {
            self.tell(News::Errors(told));
        }
    }

    fn purge(&self, url: &str) -> String {
        match self.client.post("/v1/purges", &json!({ "url": url })) {
            Ok(_) => format!("purged {url}"),
            Err(why) => format!("not purged: {}", words(why)),
        }
    }

    /// Whoever draws takes it in a moment; if nobody draws any more, nobody is to be told.
    fn tell(&self, news: News) {
        let _ = self.to.send(news);
    }
}

fn words(why: Failed) -> String {
    match why {
        Failed::Refused(why) | Failed::Unreached(why) => why,
    }
}
