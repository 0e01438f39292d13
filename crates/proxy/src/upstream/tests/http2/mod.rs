//! HTTP/2 with servers: one that is the `h2` crate's (`fair`), and one that sends any frames it likes (`odd`).

mod fair;
mod frames;
mod odd;

use super::*;

impl Origin {
    fn http2(&self) -> Arc<Group> {
        self.http2_with(|_| {})
    }

    fn http2_with(&self, change: impl FnOnce(&mut GroupSettings)) -> Arc<Group> {
        self.group_with(|settings| {
            settings.http2 = true;
            change(settings);
        })
    }
}
