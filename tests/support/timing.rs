//! Adapters that cannot tell the time.

use linn::{Device, Error, Event};

/// True where the device can tell the time; checks what is said where it cannot.
pub fn can_measure(device: &Device) -> bool {
    let has = device.has_timestamps();
    assert_eq!(has, device.features().iter().any(|feature| feature == "TIMESTAMP_QUERY"));
    if !has {
        let (event, stream) = (Event::with_timing(), device.default_stream());
        let commands = device.stats().timeline.commands;
        let error = event.record(&stream).unwrap_err();
        assert!(matches!(error, Error::Limit { op: "record", .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(device.name()) && text.contains("\nhelp: use Event::new()"), "{text}");
        // It was not recorded, and an event without timing works.
        assert!(event.query() && device.stats().timeline.commands == commands);
        let error = event.elapsed_time(&event).unwrap_err().to_string();
        assert!(error.contains("the start event is not recorded"), "{error}");
        Event::new().record(&stream).unwrap();
    }
    has
}
