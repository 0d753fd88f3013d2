//! A queue that stands still: in the moment it answers a future, until it is told to go on.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use linn::{Device, Tensor};

/// Nothing here takes so long: a test that would hang fails.
pub const LONG: Duration = Duration::from_secs(100);

/// Stops the queue thread in the moment a future is answered: it calls the wakers, and this one waits for a word.
struct Stop {
    stopped: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Wake for Stop {
    fn wake(self: Arc<Self>) {
        let _ = self.stopped.send(());
        let _ = self.go_on.lock().unwrap().recv();
    }
}

/// The queue stops when `future` is answered: (a message then, what makes it go on). `None`: it was answered already.
pub fn stop_at(future: Pin<&mut impl Future>) -> Option<(Receiver<()>, Sender<()>)> {
    let ((stopped, is_stopped), (go_on, may_go_on)) = (channel(), channel());
    let waker = Waker::from(Arc::new(Stop { stopped, go_on: Mutex::new(may_go_on) }));
    match future.poll(&mut Context::from_waker(&waker)) {
        Poll::Pending => Some((is_stopped, go_on)),
        Poll::Ready(_) => None,
    }
}

/// The queue of `device` stands still now, with nothing under way; a message to the answer makes it go on, dropping it too.
pub fn stop(device: &Device) -> Sender<()> {
    let x = Tensor::ones(device, &[64]).unwrap();
    // What the queue thread buys on some drivers has to be there: the staging of a read.
    x.to_vec::<f32>().unwrap();
    loop {
        x.fill_(1.0).unwrap();
        let mut done = Box::pin(device.default_stream().synchronize_async());
        if let Some((stopped, go_on)) = stop_at(done.as_mut()) {
            // The waker is called when the future is answered, whether anybody still awaits it or not.
            stopped.recv_timeout(LONG).unwrap();
            return go_on;
        }
    }
}
