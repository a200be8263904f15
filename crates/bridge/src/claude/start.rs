//! How the program is started and ended, and what is done about a conversation that it does not find.

use std::io;
use std::time::Duration;

use ash_protocol::NO_RUN;
use serde_json::json;

use super::process::{INITIALIZE_PATIENCE, Program, Trouble};
use super::setup::{Setup, Which};
use super::transcript::{Found, Transcript};
use super::turn::Wish;
use super::{CUT, Claude, Unsure, output};
use crate::questions::{new_id, pass};
use crate::reports::Reports;

/// Who comes so soon after a start that failed has waited for it.
const JUST_NOW: Duration = Duration::from_secs(1);

/// In so many starts in a row the program has to say that it does not find what is written down, until that is given up.
const MAX_UNFOUND: u32 = 3;

/// How long the program may take to do something at once.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

impl Claude {
    /// Sees to it that the program finds the conversation that the record tells of.
    pub(super) fn prove(&mut self) -> io::Result<()> {
        let (transcript, name) = (self.transcript(), self.which.name().to_owned());
        transcript.make_room()?;
        let is_blank = self.record.conversation().is_some()
            && !self.record.has_messages()?
            && !transcript.has_messages();
        if is_blank {
            // Its only message was refused.
            transcript.set_aside()?;
            self.which = Which::New(new_id()?);
        } else if self.record.conversation().is_some() {
            if let Found::Lacking(why) = transcript.check(&self.record)? {
                transcript.rebuild(&self.record)?;
                self.notices.push(format!("the transcript was made anew: {why}"));
            }
            self.which = Which::Known(name);
            self.adopt(&transcript)?;
        } else if self.record.turns() > 0 && transcript.has_messages() {
            // The first turn was cut before any of it was mirrored.
            self.which = Which::Known(name);
            self.adopt(&transcript)?;
        } else {
            transcript.set_aside()?;
            self.which = Which::New(name);
        }
        Ok(())
    }

    /// Writes down what the program has written down and was killed before it repeated that. It goes on from there, so
    /// the record has to have it.
    fn adopt(&mut self, transcript: &Transcript) -> io::Result<()> {
        let beyond = transcript.beyond(&self.record)?;
        if !beyond.is_empty() {
            let file = transcript.path().to_string_lossy();
            let events = self.write_down(NO_RUN, &file, &beyond);
            self.aside.events.extend(events);
            self.aside.is_unproven = true;
        }
        Ok(())
    }

    /// Has a program that does as this run wants.
    pub(super) async fn make_ready(&mut self, setup: &Setup) -> Result<(), Trouble> {
        let is_there = self
            .program
            .as_ref()
            .is_some_and(|(program, running)| running.is_like(setup) && !program.has_ended());
        // The agent may have taken its rights away since: nothing of this turn would be written down.
        let has_room = self.transcript().make_room();
        if let Err(error) = has_room {
            self.notices.push(format!("the transcript may not be written: {error}"));
        }
        if is_there && self.tell(setup).await {
            return Ok(());
        }
        if self.silent_at.take().is_some_and(|at| at.elapsed() < JUST_NOW) {
            return Err(Trouble::Silent(INITIALIZE_PATIENCE.as_secs()));
        }
        self.stop().await;
        self.start(setup.clone()).await
    }

    /// Tells the program what is different from now on. False, if it does not do it: then it has to be started anew.
    async fn tell(&mut self, setup: &Setup) -> bool {
        let Some((program, running)) = &mut self.program else { return false };
        let mut asked = Vec::new();
        // It asks the provider whether there is such a model: that is told only if it may have another one.
        let other_model = self.unsure.model || running.model != setup.model;
        let other_mode = self.unsure.mode || running.mode != setup.mode;
        // Until it has answered. Nobody may wait for that.
        self.unsure = Unsure { model: other_model, mode: other_mode };
        if other_model {
            let request = json!({ "subtype": "set_model", "model": setup.model });
            asked.push(program.ask(request).await);
        }
        if other_mode {
            let request = json!({ "subtype": "set_permission_mode", "mode": setup.mode });
            asked.push(program.ask(request).await);
        }
        let heard_besides = &mut self.heard;
        let answered = async {
            while !asked.is_empty() {
                let Some(heard) = program.next().await else { return false };
                match &heard.head.response {
                    Some(response) if asked.contains(&response.request_id) => {
                        if response.subtype != "success" {
                            return false;
                        }
                        asked.retain(|id| *id != response.request_id);
                    }
                    Some(_) | None => heard_besides.push(heard),
                }
            }
            true
        };
        let is_done = tokio::select! {
            answered = answered => answered,
            () = pass(ANSWER_PATIENCE) => false,
        };
        if is_done {
            *running = setup.clone();
            self.unsure = Unsure::default();
        }
        self.put_all_aside();
        is_done
    }

    /// Takes note of what was heard besides.
    pub(super) fn put_all_aside(&mut self) {
        let heard = std::mem::take(&mut self.heard);
        let wishes: Vec<Wish> =
            heard.into_iter().flat_map(|heard| self.aside.turn.take(heard)).collect();
        wishes.into_iter().for_each(|wish| self.put_aside(wish));
    }

    /// Starts the program. Each remedy is tried once: one that did not help will not help the second time.
    pub(super) async fn start(&mut self, setup: Setup) -> Result<(), Trouble> {
        let (mut is_rebuilt, mut is_renamed, mut found_at) = (false, false, None);
        // Everything that the program is given comes from the record.
        if !self.record.is_there() {
            self.is_record_gone = true;
            return Err(Trouble::RecordGone);
        }
        self.prove().map_err(|error| not_there(&error))?;
        loop {
            let found_at_path = found_at.as_deref();
            let command =
                setup.command(&self.executable, &self.settings, &self.which, found_at_path);
            match Program::start(&self.processes, command, setup.greeting()).await {
                Ok(program) => {
                    if program.garbage() > 0 {
                        let lines = program.garbage();
                        self.notices
                            .push(format!("Claude Code printed {lines} lines that say nothing"));
                    }
                    // One that is new has cost nothing yet.
                    if matches!(self.which, Which::New(_)) {
                        self.total_usd = Some(0.0);
                    }
                    (self.program, self.unfound) = (Some((program, setup)), 0);
                    self.unsure = Unsure::default();
                    return Ok(());
                }
                Err(Trouble::NoConversation(_))
                    if !is_rebuilt && self.record.conversation().is_some() =>
                {
                    is_rebuilt = true;
                    let transcript = self.transcript();
                    transcript.rebuild(&self.record).map_err(|error| not_there(&error))?;
                    self.notices.push("the transcript was made anew: it was not found".to_owned());
                }
                // It may look for its files elsewhere.
                Err(Trouble::NoConversation(_)) if is_rebuilt && found_at.is_none() => {
                    found_at = Some(self.transcript().path().to_owned());
                }
                Err(Trouble::NoConversation(said)) => {
                    // What is written down is not given up for what may pass.
                    self.unfound += 1;
                    if self.unfound >= MAX_UNFOUND || !self.record.has_messages().unwrap_or(false) {
                        (self.lost, self.unfound) = (Some(said.clone()), 0);
                    }
                    return Err(Trouble::NoConversation(said));
                }
                Err(Trouble::NameTaken(_))
                    if !is_renamed && matches!(self.which, Which::New(_)) =>
                {
                    is_renamed = true;
                    self.which = Which::New(new_id().map_err(|error| not_there(&error))?);
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Gives the conversation up for another one.
    pub(super) fn begin_anew(&mut self, run: &str) -> io::Result<()> {
        self.transcript().set_aside()?;
        self.record.begin_anew(run)?;
        self.which = Which::New(new_id()?);
        Ok(())
    }

    /// Cuts off calls that have no answer, which the model's provider refuses. Says whether there were any.
    pub(super) async fn cut_poison(&mut self, run: &str, reports: &Reports) -> io::Result<bool> {
        self.stop().await;
        self.tell_aside(reports).await;
        let Some(uuid) = self.transcript().cut_before_unanswered()? else { return Ok(false) };
        self.record.cut(run, &uuid)?;
        output(reports, CUT, &json!({ "uuid": uuid })).await;
        let message = "calls without an answer, which the model's provider refused, were cut off";
        self.notices.push(message.to_owned());
        Ok(true)
    }

    /// Forgets a message that the model's provider has refused: nothing that comes after it would be taken either.
    pub(super) async fn cut_refused(
        &mut self,
        run: &str,
        given: &str,
        reports: &Reports,
    ) -> io::Result<()> {
        self.stop().await;
        self.tell_aside(reports).await;
        let transcript = self.transcript();
        match transcript.cut_before(given) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        self.record.cut(run, given)?;
        output(reports, CUT, &json!({ "uuid": given })).await;
        let message =
            "the message was refused by the model's provider, and the agent does not know it";
        self.notices.push(message.to_owned());
        // One that was the first leaves nothing that could be gone on with.
        if transcript.has_messages() { Ok(()) } else { self.begin_anew(run) }
    }

    /// Lets the program end, if it runs.
    pub(super) async fn stop(&mut self) {
        let Some((program, _)) = self.program.take() else { return };
        program.close(|heard| self.heard.push(heard)).await;
        self.put_all_aside();
    }
}

/// Its files could not be made ready.
fn not_there(error: &io::Error) -> Trouble {
    Trouble::Other(format!("Claude Code's directory could not be made ready: {error}"))
}
