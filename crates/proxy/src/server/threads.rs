//! The serving threads: started together before the first of them accepts, and watched until they end.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::sync::watch;

use super::error::ServerError;

/// The serving threads of a server.
pub(super) struct ServeThreads {
    threads: Vec<JoinHandle<io::Result<()>>>,
    permission: watch::Sender<bool>,
    /// Number of threads that have ended.
    ended: watch::Receiver<usize>,
}

/// The way of a thread from its start to the permission to accept.
pub(super) struct ThreadStart {
    ready: mpsc::Sender<()>,
    permission: watch::Receiver<bool>,
    _end: EndNotice,
}

impl ThreadStart {
    /// Reports that everything which can fail is done, and waits for the permission to accept. Returns `false` if the
    /// server does not start.
    pub(super) async fn wait_for_permission(&mut self) -> bool {
        // Without a receiver the server does not start, and gives no permission either.
        let _ = self.ready.send(());
        self.permission.wait_for(|&given| given).await.is_ok()
    }
}

/// Counts the end of a thread when dropped, also by a panic.
struct EndNotice(watch::Sender<usize>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.0.send_modify(|ended| *ended += 1);
    }
}

impl ServeThreads {
    /// Starts a thread for each of these, and waits until all are ready to accept.
    pub(super) fn start<W>(works: impl IntoIterator<Item = W>) -> Result<Self, ServerError>
    where
        W: FnOnce(ThreadStart) -> io::Result<()> + Send + 'static,
    {
        let (permission, permitted) = watch::channel(false);
        let (count, ended) = watch::channel(0);
        let mut this = Self {
            threads: Vec::new(),
            permission,
            ended,
        };
        for (number, work) in works.into_iter().enumerate() {
            let (ready, is_ready) = mpsc::channel();
            let start = ThreadStart {
                ready,
                permission: permitted.clone(),
                _end: EndNotice(count.clone()),
            };
            let thread = thread::Builder::new()
                .name(format!("serve-{number}"))
                .spawn(move || work(start))
                .map_err(ServerError::Thread)?;
            this.threads.push(thread);
            if is_ready.recv().is_err() {
                drop(permitted);
                this.join()?;
                return Err(ServerError::Thread(ended_early()));
            }
        }
        Ok(this)
    }

    /// Lets all threads accept.
    pub(super) fn accept(&self) {
        self.permission.send_replace(true);
    }

    /// Waits for the end of the first thread.
    pub(super) async fn first_end(&self) {
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(|&ended| ended > 0).await;
    }

    /// Waits for the end of all threads, and returns the first error.
    pub(super) fn join(self) -> Result<(), ServerError> {
        // Threads that still wait for the permission end.
        drop(self.permission);
        let ends: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        for end in ends {
            // The panic itself has been logged.
            end.unwrap_or_else(|_| Err(ended_early()))
                .map_err(ServerError::Thread)?;
        }
        Ok(())
    }
}

fn ended_early() -> io::Error {
    io::Error::other("a serving thread ended by itself")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Work = Box<dyn FnOnce(ThreadStart) -> io::Result<()> + Send>;

    fn serves(accepts: &Arc<AtomicUsize>) -> Work {
        let accepts = Arc::clone(accepts);
        Box::new(move |mut start| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            if runtime.block_on(start.wait_for_permission()) {
                accepts.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    #[test]
    fn no_thread_accepts_before_all_are_ready_and_permitted() {
        let accepts = Arc::default();
        let threads = ServeThreads::start([serves(&accepts), serves(&accepts)]).expect("started");
        assert_eq!(accepts.load(Ordering::Relaxed), 0);
        threads.accept();
        threads.join().expect("they ended well");
        assert_eq!(accepts.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_thread_that_cannot_start_ends_the_others() {
        let accepts = Arc::default();
        let fails: Work = Box::new(|_| Err(io::Error::other("no descriptor is left")));
        let started = ServeThreads::start([serves(&accepts), fails, serves(&accepts)]);
        let error = started.err().expect("it cannot start").to_string();
        assert_eq!(error, "cannot start a thread: no descriptor is left");
        assert_eq!(accepts.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn the_end_of_one_thread_is_noticed_while_the_others_serve() {
        let panics: Work = Box::new(|mut start| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(start.wait_for_permission());
            panic!("a fault in the accept loop");
        });
        let (stop, mut stopped) = watch::channel(false);
        let goes_on: Work = Box::new(move |mut start| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(async {
                start.wait_for_permission().await;
                let _ = stopped.wait_for(|&stopped| stopped).await;
            });
            Ok(())
        });
        let threads = ServeThreads::start([goes_on, panics]).expect("started");
        threads.accept();
        threads.first_end().await;
        stop.send_replace(true);
        let error = threads.join().expect_err("one has panicked").to_string();
        assert!(error.contains("ended by itself"), "{error}");
    }
}
