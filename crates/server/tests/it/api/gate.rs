//! What stands between a server and its bucket, and can be shut.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Lets requests through to another server, until it is shut; so many of a kind, if it is told to count them.
#[derive(Clone)]
pub(crate) struct Gate {
    shared: Arc<Shared>,
    pub(crate) endpoint: String,
}

struct Shared {
    beyond: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    /// How many requests that begin so are let through before they are held.
    left: Option<(&'static [u8], u32)>,
    is_held: bool,
    open: Vec<TcpStream>,
}

impl Gate {
    pub(crate) fn before(endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint_here = format!("http://{}", listener.local_addr().unwrap());
        let beyond = endpoint.strip_prefix("http://").unwrap().to_owned();
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { beyond, state, changed });
        let theirs = Arc::clone(&shared);
        thread::spawn(move || {
            for arrived in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&theirs);
                thread::spawn(move || pass(&shared, arrived));
            }
        });
        Self { shared, endpoint: endpoint_here }
    }

    /// Cuts everything off.
    pub(crate) fn shut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.is_shut = true;
        for stream in state.open.drain(..) {
            let _gone_already = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn open(&self) {
        let mut state = self.shared.state.lock().unwrap();
        *state = State { open: std::mem::take(&mut state.open), ..State::default() };
        self.shared.changed.notify_all();
    }

    /// Lets so many puts through, and holds the next.
    pub(crate) fn hold_after(&self, puts: u32) {
        self.hold(b"PUT ", puts);
    }

    /// The same of what removes objects.
    pub(crate) fn hold_after_deletes(&self, deletes: u32) {
        self.hold(b"DELETE ", deletes);
    }

    /// Lets no more reads through.
    pub(crate) fn hold_reads(&self) {
        self.hold(b"GET ", 0);
    }

    fn hold(&self, kind: &'static [u8], after: u32) {
        let mut state = self.shared.state.lock().unwrap();
        (state.left, state.is_held) = (Some((kind, after)), false);
    }

    /// Whether a request is held.
    pub(crate) fn is_held(&self) -> bool {
        self.shared.state.lock().unwrap().is_held
    }
}

impl Shared {
    /// Waits until a request may pass.
    fn admit(&self, request: &[u8]) -> bool {
        let mut state = self.state.lock().unwrap();
        if let Some((kind, left)) = state.left
            && request.starts_with(kind)
        {
            if left == 0 {
                state.is_held = true;
                let held = |state: &mut State| {
                    state.left.is_some_and(|(_, left)| left == 0) && !state.is_shut
                };
                state = self.changed.wait_while(state, held).unwrap();
            } else {
                state.left = Some((kind, left - 1));
            }
        }
        !state.is_shut
    }
}

fn pass(shared: &Shared, arrived: TcpStream) {
    if shared.state.lock().unwrap().is_shut {
        return;
    }
    let Ok(beyond) = TcpStream::connect(&shared.beyond) else { return };
    {
        let mut state = shared.state.lock().unwrap();
        state.open.push(arrived.try_clone().unwrap());
        state.open.push(beyond.try_clone().unwrap());
    }
    let back = (beyond.try_clone().unwrap(), arrived.try_clone().unwrap());
    let answers = thread::spawn(move || flow(back.0, back.1, |_| true));
    flow(arrived, beyond, |bytes| shared.admit(bytes));
    answers.join().unwrap();
}

fn flow(mut from: TcpStream, mut to: TcpStream, admit: impl Fn(&[u8]) -> bool) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if !admit(&bytes[..length]) || to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _gone_already = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}
