//! HTTP/2 to servers: conforming ones of the `h2` crate (`fair`), and ones that break off, lie or stay silent (`odd`),
//! scripted frame by frame (`frames`).

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
