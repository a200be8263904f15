//! A session on a terminal: what happens in it, what goes on, and what a person types.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Stdout, Write as _};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use super::connect::Context;
use super::exit::{Mistake, says_ended};
use super::output::{Reader, note, plain, reader};
use super::questions::answer;
use super::render::{self, Ending, cut_by, ending};
use super::transcript::editor::{Editor, Keys, Typed};
use super::transcript::painter::{Painter, Picture, Size};
use super::transcript::status::Status;
use super::transcript::text::{Color, Row};
use super::transcript::{Detail, Now, Story};
use super::watch::{OnCtrlC, Watched};
use super::{ask, chat};
use crate::api::{Behavior, DecidePermission};
use crate::client::{ClientError, EventStream, Incoming, ServerEvent};

/// How often the bottom is painted while something moves.
const TICK: Duration = Duration::from_millis(50);

/// Events that come closer together are painted together.
const PAINT: Duration = Duration::from_millis(25);

/// SIGCONT: the program has the terminal again.
const CONTINUED: i32 = 18;

/// How long one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// Until the stream ends: one run.
    Once,
    /// Until one leaves, and whatever is typed is sent.
    Talking,
    /// Until one leaves. Nothing is sent.
    Watching,
}

/// What a session is shown with.
pub(super) struct Beginning {
    pub(super) session: Uuid,
    pub(super) stream: EventStream,
    pub(super) status: Status,
    /// What is in the log up to here happened before.
    pub(super) past: u64,
    pub(super) stay: Stay,
    pub(super) on_ctrl_c: OnCtrlC,
}

/// Shows a session until it is over, or until one leaves.
pub(super) async fn talk(
    ctx: &Context,
    beginning: Beginning,
    ctrl_c: &mut Signal,
) -> anyhow::Result<Watched> {
    let mut talk = Talk::new(ctx, &beginning);
    let Beginning { mut stream, .. } = beginning;
    if talk.stay == Stay::Talking {
        talk.listen();
    }
    let outcome = talk.go_on(&mut stream, ctrl_c).await;
    // Also after a failure: the terminal is to be as it was.
    let left = talk.leave();
    let watched = outcome?;
    if reader(left)? == Reader::Gone {
        return Ok(Watched::Unread);
    }
    if watched == Watched::Left {
        let session = talk.session;
        let what = match (talk.status.runs(), talk.on_ctrl_c) {
            (false, _) => "left",
            (true, _) if talk.status.is_frozen() => {
                "left; the run stands still until it is resumed"
            }
            (true, OnCtrlC::CutTheRun) if talk.cuts > 0 => "left; the run was asked to stop",
            (true, OnCtrlC::CutTheRun | OnCtrlC::Leave) => "left; the run goes on",
        };
        note(&format!("{what}; come back with: ash session attach {session}"));
    }
    Ok(watched)
}

/// What became of something that was asked of the server beside.
enum Asked {
    Sent(String, Result<(), ClientError>),
    Cut(Result<(), ClientError>),
    Answered(Result<(), ClientError>),
}

struct Talk<'a> {
    ctx: &'a Context,
    session: Uuid,
    stay: Stay,
    on_ctrl_c: OnCtrlC,
    past: u64,
    painter: Painter<Stdout>,
    story: Story,
    status: Status,
    editor: Editor,
    keys: Option<Keys>,
    typed: Option<mpsc::Receiver<Vec<u8>>>,
    questions: VecDeque<Uuid>,
    asked: JoinSet<Asked>,
    /// The run that is shown, where one is; otherwise whichever goes on.
    run: Option<Uuid>,
    cuts: u32,
    was_warned: bool,
    has_failed: bool,
    ended: Option<Ending>,
    painted: Instant,
    is_stale: bool,
}

impl<'a> Talk<'a> {
    fn new(ctx: &'a Context, beginning: &Beginning) -> Self {
        let now = Instant::now();
        let detail = if ctx.screen.verbose { Detail::Everything } else { Detail::Folded };
        let color = ctx.screen.color;
        let stay = beginning.stay;
        Self {
            ctx,
            session: beginning.session,
            stay,
            on_ctrl_c: beginning.on_ctrl_c,
            past: beginning.past,
            painter: Painter::new(std::io::stdout(), color),
            story: Story::new(detail, color, stay != Stay::Once),
            status: beginning.status.clone(),
            editor: Editor::default(),
            keys: None,
            typed: None,
            questions: VecDeque::new(),
            asked: JoinSet::new(),
            run: None,
            cuts: 0,
            was_warned: false,
            has_failed: false,
            ended: None,
            painted: now,
            is_stale: true,
        }
    }

    async fn go_on(
        &mut self,
        stream: &mut EventStream,
        ctrl_c: &mut Signal,
    ) -> anyhow::Result<Watched> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut resized = signal(SignalKind::window_change())?;
        let mut continued = signal(SignalKind::from_raw(CONTINUED))?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        loop {
            let left = tokio::select! {
                next = stream.next() => self.hear(next)?,
                _ = ctrl_c.recv() => self.ctrl_c(),
                bytes = next_bytes(self.typed.as_mut()) => self.take(bytes),
                Some(Ok(asked)) = self.asked.join_next() => self.answered(asked)?,
                _ = terminated.recv() => return Err(Mistake::Stopped(15).into()),
                _ = hung_up.recv() => return Err(Mistake::Stopped(1).into()),
                _ = resized.recv() => {
                    self.is_stale = true;
                    None
                }
                _ = continued.recv() => {
                    if let Some(keys) = &self.keys {
                        keys.again();
                    }
                    self.painter.forget();
                    self.is_stale = true;
                    None
                }
                _ = ticks.tick() => {
                    self.is_stale = self.is_stale || self.status.moves();
                    self.painted = Instant::now() - PAINT;
                    None
                }
            };
            let is_due = self.is_stale && self.painted.elapsed() >= PAINT;
            if (left.is_some() || is_due) && reader(self.paint())? == Reader::Gone {
                return Ok(Watched::Unread);
            }
            if let Some(left) = left {
                return Ok(left);
            }
        }
    }

    fn now(&self) -> Now {
        self.moment(false)
    }

    fn moment(&self, is_past: bool) -> Now {
        let size = Size::now();
        Now { at: Instant::now(), width: size.room(), reach: self.painter.reach(size), is_past }
    }

    fn hear(
        &mut self,
        next: Result<Option<Incoming>, ClientError>,
    ) -> anyhow::Result<Option<Watched>> {
        self.is_stale = true;
        match next? {
            Some(Incoming::Event(event)) => {
                self.event(&event);
                let is_over = self.stay != Stay::Once && event.name == "session_ended";
                Ok(is_over.then_some(Watched::Completed))
            }
            Some(Incoming::Reconnecting { .. }) => {
                self.status.set_reconnecting(true);
                Ok(None)
            }
            Some(Incoming::Connected) => {
                self.status.set_reconnecting(false);
                Ok(None)
            }
            None => Ok(Some(match self.ended {
                Some(Ending::Completed) => Watched::Completed,
                Some(Ending::Failed) | None if self.cuts > 0 => Watched::Cut,
                None if self.stay != Stay::Once => Watched::Completed,
                Some(Ending::Failed) | None => Watched::Failed,
            })),
        }
    }

    fn event(&mut self, event: &ServerEvent) {
        let is_past = event.cursor.is_some_and(|cursor| cursor.seq <= self.past);
        let now = self.moment(is_past);
        self.status.hear(event, now.at, is_past);
        if self.stay == Stay::Once && self.run.is_none() && event.run().is_some() {
            self.run = event.run();
            if self.cuts > 0 {
                self.cut();
            }
        }
        match event.name.as_str() {
            "run_started" => self.has_failed = false,
            "error" => self.has_failed = true,
            "permission_request" => self.question(event, now),
            "permission_decided" | "permission_resolved" => {
                let id = event.text("id").and_then(|id| id.parse::<Uuid>().ok());
                self.questions.retain(|open| Some(*open) != id);
            }
            "done" => {
                self.ended = Some(ending(event));
                self.questions.clear();
                if let Some(reason) = cut_by(event, self.cuts).filter(|_| !self.has_failed) {
                    self.story.aside(Color::Yellow, &reason, now);
                }
                if self.stay != Stay::Once {
                    self.cuts = 0;
                }
            }
            _ => {}
        }
        self.status.set_questions(self.questions.len());
        self.story.show(event, now);
    }

    fn question(&mut self, event: &ServerEvent, now: Now) {
        let Some(id) = event.text("id").and_then(|id| id.parse::<Uuid>().ok()) else { return };
        let tool = event.text("tool").unwrap_or("a tool");
        let what = render::tool_line(tool, event.data.get("input"), 300);
        self.story.aside(Color::Yellow, &format!("? {what}"), now);
        if self.stay == Stay::Once {
            self.listen();
        }
        if self.typed.is_some() {
            self.questions.push_back(id);
        } else {
            let session = self.session;
            let line = format!("  answer with: ash session allow {session} {id}, or deny");
            self.story.remark(&line, now);
        }
    }

    /// Hears what is typed from now on.
    fn listen(&mut self) {
        if self.typed.is_none() && std::io::stdin().is_terminal() {
            self.keys = Keys::begin();
            self.typed = Some(ask::bytes());
            // What is pasted is told apart from what is typed.
            let _unseen = std::io::stdout().write_all(b"\x1b[?2004h");
        }
    }

    fn take(&mut self, bytes: Option<Vec<u8>>) -> Option<Watched> {
        self.is_stale = true;
        let Some(bytes) = bytes else {
            self.typed = None;
            return (self.stay == Stay::Talking).then_some(Watched::Completed);
        };
        self.was_warned = false;
        for typed in self.editor.feed(&bytes) {
            match typed {
                Typed::End if self.stay == Stay::Talking => return Some(self.end_of_input()),
                Typed::End => {}
                Typed::Line(line) => {
                    if let Some(left) = self.line(line) {
                        return Some(left);
                    }
                }
            }
        }
        None
    }

    /// Whoever says good-bye in the middle of a run leaves it.
    fn end_of_input(&self) -> Watched {
        if self.status.runs() { Watched::Left } else { Watched::Completed }
    }

    fn line(&mut self, line: String) -> Option<Watched> {
        if !self.questions.is_empty() {
            match answer(&line) {
                Some(behavior) => self.decide(behavior),
                None => self.story.remark("  y or n?", self.now()),
            }
            return None;
        }
        if self.stay != Stay::Talking {
            return None;
        }
        match line.trim() {
            "" => return None,
            "/exit" | "/quit" => return Some(self.end_of_input()),
            _ => {}
        }
        self.status.sending(Instant::now());
        let (client, session) = (self.ctx.client.clone(), self.session);
        self.asked.spawn(async move {
            let message = chat::message(line.clone());
            Asked::Sent(line, client.send_detached(session, &message).await.map(drop))
        });
        None
    }

    fn decide(&mut self, behavior: Behavior) {
        let Some(id) = self.questions.pop_front() else { return };
        self.status.set_questions(self.questions.len());
        let (client, session) = (self.ctx.client.clone(), self.session);
        let decision = DecidePermission { behavior, input: None, message: None };
        self.asked.spawn(async move {
            Asked::Answered(client.decide(session, id, &decision).await.map(drop))
        });
    }

    fn ctrl_c(&mut self) -> Option<Watched> {
        self.is_stale = true;
        if self.stay == Stay::Talking && !self.status.runs() {
            if !self.editor.is_empty() {
                self.editor.clear();
                return None;
            }
            if std::mem::replace(&mut self.was_warned, true) {
                return Some(Watched::Left);
            }
            self.story.remark("(Ctrl-C again, or Ctrl-D, leaves)", self.now());
            return None;
        }
        self.cuts += 1;
        if self.on_ctrl_c == OnCtrlC::Leave || self.cuts > 1 {
            return Some(Watched::Left);
        }
        self.status.set_cutting(true);
        // The run may be over before the second one is pressed, which leaves all the same.
        self.was_warned = true;
        // Somebody else's run may go on meanwhile: nothing is cut before it is known which.
        if self.stay != Stay::Once || self.run.is_some() {
            self.cut();
        }
        None
    }

    /// Has the run cut. Beside: whoever presses Ctrl-C again does not wait for the server.
    fn cut(&mut self) {
        let (client, session, run) = (self.ctx.client.clone(), self.session, self.run);
        self.asked.spawn(async move { Asked::Cut(client.interrupt(session, run).await.map(drop)) });
    }

    fn answered(&mut self, asked: Asked) -> anyhow::Result<Option<Watched>> {
        self.is_stale = true;
        let (what, error) = match asked {
            Asked::Sent(_, Ok(())) | Asked::Cut(Ok(())) | Asked::Answered(Ok(())) => {
                return Ok(None);
            }
            Asked::Sent(_, Err(ClientError::Problem(problem))) if says_ended(&problem) => {
                return Err(ClientError::Problem(problem).into());
            }
            Asked::Sent(text, Err(error)) => {
                self.status.not_sent();
                if self.editor.is_empty() {
                    self.editor.feed(text.as_bytes());
                }
                ("it was not sent", error)
            }
            Asked::Cut(Err(error)) => {
                self.status.set_cutting(false);
                ("it was not cut", error)
            }
            Asked::Answered(Err(error)) => ("it was not answered", error),
        };
        let line = format!("{what}: {}", plain(&error.to_string()));
        self.story.aside(Color::Red, &line, self.now());
        Ok(None)
    }

    fn paint(&mut self) -> std::io::Result<()> {
        let size = Size::now();
        let (now, width) = (Instant::now(), size.room());
        let (back, rows) = self.story.take();
        let mut bottom = self.story.live(self.status.frame(now), width);
        let mut cursor = None;
        let goes_on = self.ended.is_none() || self.stay != Stay::Once;
        if goes_on {
            if self.stay == Stay::Talking {
                bottom.push(Row::default());
            }
            bottom.push(self.status.row(now, width));
        }
        let is_asked = !self.questions.is_empty();
        if self.typed.is_some() && (self.stay == Stay::Talking || is_asked) && goes_on {
            let prompt = if is_asked { "[y/n] " } else { "> " };
            let (row, column) = self.editor.row(prompt, width);
            cursor = Some((bottom.len(), column));
            bottom.push(row);
        }
        self.painter.paint(Picture { back, rows, bottom, cursor }, size)?;
        self.painted = now;
        self.is_stale = false;
        Ok(())
    }

    /// Leaves the terminal as it was, with the story on it.
    fn leave(&mut self) -> std::io::Result<()> {
        let size = Size::now();
        let mut rest = self.story.live("·", size.room());
        let (back, mut rows) = self.story.take();
        rows.append(&mut rest);
        let picture = Picture { back, rows, ..Picture::default() };
        let painted = self.painter.paint(picture, size);
        if self.keys.take().is_some() {
            std::io::stdout().write_all(b"\x1b[?2004l")?;
            std::io::stdout().flush()?;
        }
        painted
    }
}

/// What is typed next; for ever nothing, if nobody types.
async fn next_bytes(typed: Option<&mut mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match typed {
        Some(typed) => typed.recv().await,
        None => std::future::pending().await,
    }
}
