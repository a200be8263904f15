//! Throws bytes at the decoders of a manifest.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ash_snapshot::decoders::manifest(data);
});
