//! A small object server in memory, for the calls that are made here: objects are put, read, listed and
//! deleted as by Google Cloud Storage (its XML API) or by S3. It can be told to misbehave.
//!
//! It is written from the documentation of both and from what the client sends. It is not Google's.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Whose server it plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Amazon,
    Google,
}

/// The bucket that is there.
pub(crate) const BUCKET: &str = "bucket";
/// Who may use it.
pub(crate) const KEY: &str = "test-key";
pub(crate) const TOKEN: &str = "test-token";

/// How many objects are on a page of a list: few, so that lists have several.
const PAGE: usize = 2;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It is answered.
    Right,
    /// It is answered with this status, and not done.
    Status(u16),
    /// It is done, and answered with this status.
    DoneButStatus(u16),
    /// It is done, and the connection ends without an answer.
    DoneThenCut,
    /// It is never answered.
    Stall,
    /// Half of the body comes, and the connection ends.
    Truncate,
    /// The body has other bytes.
    Wrong,
    /// The conditions of a put are ignored.
    Overwrite,
    /// All of the object is answered, whatever range is asked for.
    AllOfIt,
    /// What was just put is not in lists.
    ListNothing,
    /// What is to be deleted stays.
    KeepIt,
    /// Half of what is put is kept, and it is said that all is well.
    Halve,
    /// The same, of what is put with another byte in it.
    Alter,
    /// The same, of what is not kept at all.
    Lose,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The name of an object, or nothing.
    pub(crate) name: String,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

type Decide = dyn Fn(&Request) -> Manner + Send + Sync;
type Kept = BTreeMap<String, (Vec<u8>, i64)>;

struct Shared {
    whose: Whose,
    objects: Mutex<Kept>,
    decide: Box<Decide>,
    ends: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

/// A server that runs until this is dropped.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepts: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(whose: Whose) -> Self {
        Self::odd(whose, |_| Manner::Right)
    }

    /// One that something decides about before every request.
    pub(crate) fn odd(
        whose: Whose,
        decide: impl Fn(&Request) -> Manner + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            whose,
            objects: Mutex::default(),
            decide: Box::new(decide),
            ends: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let accepts = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                for stream in listener.incoming().map_while(Result::ok) {
                    let other = stream.try_clone().unwrap();
                    accepting.connections.lock().unwrap().push(other);
                    // Looked at after it is among them: either this sees the end, or the end sees it.
                    if accepting.ends.load(Ordering::SeqCst) {
                        break;
                    }
                    let shared = &accepting;
                    scope.spawn(move || {
                        let mut reader = BufReader::new(stream);
                        while shared.answer(&mut reader).is_some() {}
                        drop(reader.get_ref().shutdown(Shutdown::Both));
                    });
                }
                accepting.end();
            });
        });
        Self { shared, address, accepts: Some(accepts) }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes what is stored, behind everybody's back.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Kept)) {
        change(&mut self.shared.objects.lock().unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.shared.end();
        self.accepts.take().unwrap().join().unwrap();
    }
}

/// An answer.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn of(status: u16, code: &str) -> Self {
        let body = format!("<Error><Code>{code}</Code><Message>secret text</Message></Error>");
        Self { status, headers: Vec::new(), body: body.into_bytes() }
    }
}

impl Shared {
    fn end(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            drop(connection.shutdown(Shutdown::Both));
        }
    }

    /// Answers one request; nothing if the connection is over.
    fn answer(&self, reader: &mut BufReader<TcpStream>) -> Option<()> {
        let request = read_request(reader)?;
        let manner = (self.decide)(&request);
        let answer = match manner {
            Manner::Stall => {
                // Until whoever waits has had enough.
                let mut nothing = [0];
                drop(reader.read(&mut nothing));
                return None;
            }
            Manner::Status(status) => {
                let mut answer = Answer::of(status, "SlowDown");
                answer.headers.push(("retry-after", "0".to_owned()));
                answer
            }
            Manner::DoneButStatus(status) => {
                self.done(&request, manner);
                Answer::of(status, "InternalError")
            }
            Manner::DoneThenCut => {
                self.done(&request, manner);
                return None;
            }
            Manner::Right
            | Manner::Truncate
            | Manner::Wrong
            | Manner::Overwrite
            | Manner::AllOfIt
            | Manner::ListNothing
            | Manner::KeepIt
            | Manner::Halve
            | Manner::Alter
            | Manner::Lose => self.done(&request, manner),
        };
        let Answer { status, headers, mut body } = answer;
        if manner == Manner::Wrong
            && let Some(byte) = body.last_mut()
        {
            *byte ^= 4;
        }
        let mut head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if request.method == "HEAD" {
            body.clear();
        }
        if manner == Manner::Truncate {
            body.truncate(body.len() / 2);
        }
        // At once: two small packets would wait for each other.
        let mut all = format!("{head}\r\n").into_bytes();
        all.append(&mut body);
        reader.get_mut().write_all(&all).ok()?;
        if manner == Manner::Truncate { None } else { Some(()) }
    }

    fn done(&self, request: &Request, manner: Manner) -> Answer {
        if let Some(refused) = self.refused(request) {
            return refused;
        }
        let mut objects = self.objects.lock().unwrap();
        match request.method.as_str() {
            "PUT" => {
                let only_new = match self.whose {
                    Whose::Amazon => request.is("if-none-match", "*"),
                    Whose::Google => request.is("x-goog-if-generation-match", "0"),
                };
                assert!(only_new, "everything is put to be created: {request:?}");
                if manner != Manner::Overwrite && objects.contains_key(&request.name) {
                    return Answer::of(412, "PreconditionFailed");
                }
                let mut kept = (request.body.clone(), seconds());
                if manner == Manner::Halve {
                    kept.0.truncate(request.body.len() / 2);
                }
                if manner == Manner::Alter
                    && let Some(byte) = kept.0.first_mut()
                {
                    *byte ^= 4;
                }
                let headers = vec![("etag", etag(&kept.0))];
                if manner != Manner::Lose {
                    objects.insert(request.name.clone(), kept);
                }
                Answer { status: 200, headers, body: Vec::new() }
            }
            "GET" if request.name.is_empty() => {
                if manner == Manner::ListNothing {
                    return self.listed(&Kept::new(), request);
                }
                self.listed(&objects, request)
            }
            "GET" | "HEAD" => match objects.get(&request.name) {
                None => Answer::of(404, "NoSuchKey"),
                Some((bytes, at)) => read(bytes, *at, request, manner),
            },
            "DELETE" => {
                if manner != Manner::KeepIt && objects.remove(&request.name).is_none() {
                    // Amazon does not say so.
                    let status = if self.whose == Whose::Google { 404 } else { 204 };
                    return Answer::of(status, "NoSuchKey");
                }
                Answer { status: 204, headers: Vec::new(), body: Vec::new() }
            }
            _ => Answer::of(400, "NotImplemented"),
        }
    }

    fn refused(&self, request: &Request) -> Option<Answer> {
        let who = request.headers.get("authorization").map_or("", String::as_str);
        let is_known = match self.whose {
            Whose::Amazon => who.contains(&format!("Credential={KEY}/")),
            // Or whoever has signed something: nobody here can tell by whom.
            Whose::Google => who == format!("Bearer {TOKEN}") || is_signed(who),
        };
        if !is_known {
            return Some(Answer::of(403, "AccessDenied"));
        }
        request.headers.contains_key("no-such-bucket").then(|| Answer::of(404, "NoSuchBucket"))
    }

    fn listed(&self, objects: &Kept, request: &Request) -> Answer {
        assert_eq!(request.query["list-type"], "2");
        let prefix = &request.query["prefix"];
        let after = request.query.get("continuation-token").map_or("", String::as_str);
        let mut matching =
            objects.iter().filter(|(name, _)| name.starts_with(prefix) && name.as_str() > after);
        let page: Vec<_> = matching.by_ref().take(PAGE).collect();
        let mut body = "<?xml version=\"1.0\"?><ListBucketResult>".to_owned();
        for (name, (bytes, at)) in &page {
            let (day, time) = (date(*at), time(*at));
            body.push_str(&format!(
                "<Contents><Key>{name}</Key><Size>{}</Size><ETag>{}</ETag>\
                 <LastModified>{:04}-{:02}-{:02}T{time}.000Z</LastModified></Contents>",
                bytes.len(),
                etag(bytes),
                day.0,
                day.1,
                day.2,
            ));
        }
        if matching.next().is_some()
            && let Some((last, _)) = page.last()
        {
            body.push_str(&format!("<NextContinuationToken>{last}</NextContinuationToken>"));
        }
        body.push_str("</ListBucketResult>");
        Answer { status: 200, headers: Vec::new(), body: body.into_bytes() }
    }
}

impl Request {
    fn is(&self, header: &str, value: &str) -> bool {
        self.headers.get(header).is_some_and(|is| is == value)
    }
}

/// Whether it looks like what a service account signs: three parts, the first a JSON object.
fn is_signed(who: &str) -> bool {
    let parts: Vec<&str> = who.split('.').collect();
    parts.len() == 3 && parts[0].starts_with("Bearer eyJ") && parts[2].len() > 300
}

/// All of an object, or the range that is asked for.
fn read(bytes: &[u8], at: i64, request: &Request, manner: Manner) -> Answer {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = date(at);
    let month = MONTHS[usize::try_from(month).unwrap() - 1];
    let mut headers = vec![
        ("etag", etag(bytes)),
        ("last-modified", format!("{day} {month} {year} {} GMT", time(at))),
    ];
    let size = bytes.len();
    let asked = request.headers.get("range").filter(|_| manner != Manner::AllOfIt);
    let Some(asked) = asked else { return Answer { status: 200, headers, body: bytes.to_vec() } };
    let (from, to) = asked.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (from, to) = match (from, to) {
        ("", last) => (size.saturating_sub(last.parse().unwrap()), size),
        (from, "") => (from.parse().unwrap(), size),
        (from, to) => (from.parse().unwrap(), (to.parse::<usize>().unwrap() + 1).min(size)),
    };
    if from >= size {
        return Answer::of(416, "InvalidRange");
    }
    headers.push(("content-range", format!("bytes {from}-{}/{size}", to - 1)));
    Answer { status: 206, headers, body: bytes[from..to].to_vec() }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let (method, rest) = line.split_once(' ')?;
    let (target, _) = rest.split_once(' ')?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = decoded(path);
    let mut query_parts = HashMap::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        query_parts.insert(decoded(name), decoded(value));
    }
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (bucket, name) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    if bucket != BUCKET {
        headers.insert("no-such-bucket".to_owned(), bucket.to_owned());
    }
    let (method, name) = (method.to_owned(), name.to_owned());
    Some(Request { method, name, query: query_parts, headers, body })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap().to_owned();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", ash_snapshot::Id::of(bytes))
}

fn seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

fn time(at: i64) -> String {
    let second = at.rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The day of a moment, in the calendar that the years of 400 repeat in.
fn date(at: i64) -> (i64, i64, i64) {
    let days = at.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}
