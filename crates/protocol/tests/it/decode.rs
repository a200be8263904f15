//! What must hold of the decoder for any bytes at all. The fuzz target runs the same check.

use ash_protocol::{Answer, Ask, Frame, FrameDecoder, FrameError, Reported};

/// A bound that a fuzzer reaches.
const MAX: usize = 4096;

/// Decodes bytes, cut into pieces as their first byte says, and looks into every frame.
pub(crate) fn decode_everything(data: &[u8]) {
    let piece = 1 + usize::from(data.first().copied().unwrap_or(0));
    let cut = decode(data.chunks(piece));
    let whole = decode(data.chunks(MAX * 2));
    assert_eq!(cut.0, whole.0, "frames depend on how the bytes arrive");
    for frame in &cut.0 {
        look_into(frame);
    }
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Option<FrameError>) {
    let mut decoder = FrameDecoder::with_max(MAX);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(serde_json::to_string(&frame).unwrap()),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.pending() <= MAX, "it holds {} bytes", decoder.pending());
    }
    (frames, None)
}

/// A frame says the same after it was written and read again, and nothing in it panics.
fn look_into(text: &str) {
    let frame: Frame = serde_json::from_str(text).unwrap();
    let mut decoder = FrameDecoder::default();
    decoder.push(&frame.encode().unwrap());
    let again = decoder.next_frame().unwrap().unwrap();
    assert_eq!((&again.kind, again.id, again.re), (&frame.kind, frame.id, frame.re));
    if let Ok(Some(ask)) = Ask::of(&frame) {
        assert!(Ask::of(&ask.frame().unwrap()).unwrap().is_some());
    }
    if let Ok(Some(answer)) = Answer::of(&frame) {
        assert!(Answer::of(&answer.frame().unwrap()).unwrap().is_some());
    }
    if let Ok(reported) = frame.read::<Reported>() {
        let (position, run) = (reported.position, reported.run.clone());
        if let Ok(event) = reported.event() {
            let again = event.numbered(position, &run).unwrap();
            assert!(again.event().is_ok());
        }
    }
}
