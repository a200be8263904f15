//! Frames, as they are cut out of bytes and read.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]

mod decode;

use ash_protocol::{Answer, Ask, Config, Event, Frame, FrameDecoder, FrameError, Reported};
use proptest::prelude::*;
use serde_json::value::RawValue;

/// Bytes that are mostly frames, so that more than the first check is reached.
fn almost_frames() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just(br#"{"kind":"hello","id":1,"body":{"versions":{"oldest":1,"newest":2},"owner":1,"after":9}}"#.to_vec()),
        Just(br#"{"kind":"deliver","id":2,"body":{"run":"r","prompt":{"a": [1, 2]}}}"#.to_vec()),
        Just(br#"{"kind":"report","body":{"position":3,"run":"r","kind":"text_delta","body":"x"}}"#.to_vec()),
        Just(br#"{"kind":"report","body":{"position":18446744073709551615,"run":"","kind":"ended","body":{"how":{"failed":{"message":"no"}}}}}"#.to_vec()),
        Just(br#"{"kind":"decide","id":2,"body":{"id":"q","decision":{"allow":{"input":{"a": [1, 2]}}}}}"#.to_vec()),
        Just(br#"{"kind":"report","body":{"position":3,"run":"r","kind":"question","body":{"id":"q","tool":"t","input":7}}}"#.to_vec()),
        Just(br#"{"kind":"hooks","id":3,"body":{"hooks":["install","startup"],"timeout_ms":9}}"#.to_vec()),
        Just(br#"{"kind":"hooked","re":3,"body":{"done":["install"],"failed":{"hook":"startup","end":"timed_out","last_line":""}}}"#.to_vec()),
        Just(br#"{"kind":"executed","re":7,"body":{"end":{"exited":1},"stdout":"","stderr":"","omitted_bytes":0}}"#.to_vec()),
        prop::collection::vec(any::<u8>(), 0..60),
        (0_usize..6000).prop_map(|length| vec![b'['; length]),
    ];
    let damage = (any::<prop::sample::Index>(), any::<u8>(), 0_u8..4);
    prop::collection::vec((line, damage), 0..12).prop_map(|lines| {
        let mut bytes = Vec::new();
        for (mut line, (at, byte, how)) in lines {
            if how == 0 && !line.is_empty() {
                let at = at.index(line.len());
                line[at] = byte;
            }
            bytes.extend(line);
            bytes.push(b'\n');
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_decoded_or_refused_the_same_way_however_they_arrive(
        bytes in prop_oneof![almost_frames(), prop::collection::vec(any::<u8>(), 0..10_000)],
    ) {
        decode::decode_everything(&bytes);
    }
}

#[test]
fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
    let mut decoder = FrameDecoder::with_max(100);
    decoder.push(&[b'x'; 100]);
    assert!(decoder.next_frame().unwrap().is_none());
    decoder.push(b"x");
    assert!(matches!(decoder.next_frame(), Err(FrameError::TooLong { max: 100 })));
}

#[test]
fn what_is_only_passed_through_is_kept_as_it_came() {
    let prompt = r#"{"b" : 1.0, "a":[ 1e400, "\u0041" ], "b":2}"#;
    let raw = RawValue::from_string(prompt.to_owned()).unwrap();
    let line = Ask::Deliver { run: "r".to_owned(), prompt: raw }.frame().unwrap().encode().unwrap();
    let mut decoder = FrameDecoder::default();
    decoder.push(&line);
    let frame = decoder.next_frame().unwrap().unwrap();
    let Some(Ask::Deliver { prompt: kept, .. }) = Ask::of(&frame).unwrap() else { panic!() };
    assert_eq!(kept.get(), prompt);
}

#[test]
fn a_body_laid_out_over_several_lines_stays_on_one() {
    let raw = RawValue::from_string("{\n  \"a\":\r\n \"x\\ny\"\n}".to_owned()).unwrap();
    let line = Frame::new("deliver", &raw).unwrap().encode().unwrap();
    assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
    let mut decoder = FrameDecoder::default();
    decoder.push(&line);
    let body: serde_json::Value = decoder.next_frame().unwrap().unwrap().read().unwrap();
    assert_eq!(body["a"], "x\ny");
}

#[test]
fn a_kind_that_is_not_known_is_no_error() {
    let mut decoder = FrameDecoder::default();
    decoder.push(b"\n{\"kind\":\"dance\",\"id\":4,\"body\":{\"x\":1},\"tempo\":120}\n");
    let frame = decoder.next_frame().unwrap().unwrap();
    assert!(Ask::of(&frame).unwrap().is_none());
    assert!(Answer::of(&frame).unwrap().is_none());
}

/// Lines that an earlier release has written are read for ever: never edit them, add new ones.
#[test]
fn reports_of_the_first_version_are_understood() {
    let kinds: Vec<String> = include_str!("../fixtures/v1/reports.jsonl")
        .lines()
        .map(|line| {
            let reported: Reported = serde_json::from_str(line).unwrap();
            match reported.event().unwrap() {
                Event::Begun => "begun".to_owned(),
                Event::Phase { round, .. } => format!("phase {round}"),
                Event::Retry { round } => format!("retry {round}"),
                Event::TextDelta(text) | Event::ThinkingDelta(text) => text,
                Event::Message(body) => body.get().to_owned(),
                Event::Output { name, .. } => name,
                Event::Question { tool, .. } => tool,
                Event::Answered { how, .. } => format!("{how:?}"),
                Event::Ended { how, usage } => format!("{how:?} {}", usage.input_tokens),
            }
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "begun",
            "phase 1",
            "hm",
            "hi",
            "retry 1",
            r#"{"type":"assistant"}"#,
            "transcript",
            "EndTurn 12"
        ]
    );
}

#[test]
fn questions_and_their_answers_cross_the_boundary() {
    let lines = [
        r#"{"position":3,"run":"r","kind":"question","body":{"id":"q","tool":"bash","input":{"a" : 1.0}}}"#,
        r#"{"position":4,"run":"r","kind":"answered","body":{"id":"q","how":"timed_out"}}"#,
    ];
    for line in lines {
        let reported: Reported = serde_json::from_str(line).unwrap();
        let (position, event) = (reported.position, reported.event().unwrap());
        let again = event.numbered(position, "r").unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), line);
    }
    let asks = [
        r#"{"kind":"decide","id":1,"body":{"id":"q","decision":{"allow":{}}}}"#,
        r#"{"kind":"decide","id":1,"body":{"id":"q","decision":{"allow":{"input":{"a" : 1.0}}}}}"#,
        r#"{"kind":"decide","id":1,"body":{"id":"q","decision":{"deny":{"message":"no"}}}}"#,
    ];
    for line in asks {
        let frame: Frame = serde_json::from_str(line).unwrap();
        let ask = Ask::of(&frame).unwrap().unwrap();
        let again = ask.frame().unwrap().asking(1).encode().unwrap();
        assert_eq!(String::from_utf8(again).unwrap().trim_end(), line);
    }
}

/// What a server of the first release asks: the options of a session came later.
#[test]
fn a_configuration_of_the_first_version_is_understood_and_written_as_it_was() {
    let line = include_str!("../fixtures/v1/configure.json");
    let config: Config = serde_json::from_str(line).unwrap();
    assert_eq!((config.system_prompt.as_deref(), config.mcp_servers.is_none()), (None, true));
    assert_eq!(config.remark, None);
    assert!(config.allowed_tools.is_empty() && config.disallowed_tools.is_empty());
    assert_eq!(serde_json::to_string(&config).unwrap(), line.trim_end());
}

#[test]
fn the_options_of_a_session_cross_the_boundary() {
    let line = include_str!("../fixtures/v1/configure.json").trim_end();
    let mut config: Config = serde_json::from_str(line).unwrap();
    let servers = r#"{"a":{"command":"x","other":1.0}}"#;
    config.system_prompt = Some("Be brief.".to_owned());
    config.remark = Some("A file is lost.".to_owned());
    config.mcp_servers = Some(RawValue::from_string(servers.to_owned()).unwrap());
    config.allowed_tools = vec!["Bash".to_owned(), "mcp__a".to_owned()];
    config.disallowed_tools = vec!["Write".to_owned()];
    let line = Ask::Configure(Box::new(config)).frame().unwrap().encode().unwrap();
    let mut decoder = FrameDecoder::default();
    decoder.push(&line);
    let frame = decoder.next_frame().unwrap().unwrap();
    let Some(Ask::Configure(config)) = Ask::of(&frame).unwrap() else { panic!() };
    assert_eq!(config.system_prompt.as_deref(), Some("Be brief."));
    assert_eq!(config.remark.as_deref(), Some("A file is lost."));
    assert_eq!(config.mcp_servers.unwrap().get(), servers);
    assert_eq!(config.allowed_tools, ["Bash", "mcp__a"]);
    assert_eq!(config.disallowed_tools, ["Write"]);
}
