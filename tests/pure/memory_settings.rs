//! Settings as text: what each key sets, what is refused and with which words, and that the pool obeys.

use linn::ids::StreamId;
use linn::memory::sim::SimDevice;
use linn::memory::{Category, Compaction, Config, Policy, Tag};

const MIB: u64 = 1 << 20;

fn parsed(settings: &str) -> Config {
    let mut config = Config::default();
    config.apply(settings).unwrap_or_else(|error| panic!("{settings}: {error}"));
    config
}

#[test]
fn keys_set_what_they_name() {
    let config = parsed(
        " policy:pytorch, max_split_size_mb:64,max_non_split_rounding_mb:32,garbage_collection_threshold:0.8,\n\
         per_process_memory_fraction:0.5,roundup_power2_divisions:4,limit_mb:1024,expandable_segments:False,",
    );
    assert_eq!((config.policy, config.max_split_size, config.max_non_split_rounding), (Policy::Pytorch, 64 * MIB, 32 * MIB));
    assert_eq!((config.garbage_collection_threshold, config.memory_fraction, config.limit), (0.8, 0.5, 1024 * MIB));
    assert_eq!(config.roundup_power2_divisions, [4; 16]);
    assert_eq!(parsed("").policy, Policy::Linn);
    assert_eq!(parsed("policy:pytorch,policy:linn").policy, Policy::Linn, "the last one counts");
    assert_eq!(parsed("expandable_segments:True").policy, Policy::Linn);
}

#[test]
fn compaction_is_off_under_pressure_or_a_share() {
    let table = [("off", Compaction::Off), ("pressure", Compaction::Pressure), ("0.01", Compaction::Share(0.01))];
    for (value, expected) in table {
        assert_eq!(parsed(&format!("compaction:{value}")).compaction, expected);
    }
    assert_eq!(parsed("").compaction, Compaction::Pressure);
    let error = Config::default().apply("compaction:never").unwrap_err().to_string();
    assert!(error.contains("compaction is \"never\"") && error.contains("off, pressure, or a number above 0"), "{error}");
}

#[test]
fn lists_of_divisions() {
    let (a, b, c) = ([8; 7], [2; 3], [1; 6]);
    let table: [(&str, Vec<u64>); 5] = [
        ("[64:8,128:2,256:2,512:2,1024:1,>:1]", [&a[..], &b, &c].concat()),
        ("[64:8,256:4,1024:4,>:1]", vec![8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1]),
        ("[>:2]", [&[0][..], &[2; 15]].concat()),
        ("[1:4]", [&[4][..], &[0; 15]].concat()),
        ("[65536:2]", vec![2; 16]),
    ];
    for (list, expected) in table {
        assert_eq!(parsed(&format!("roundup_power2_divisions:{list}")).roundup_power2_divisions.to_vec(), expected, "{list}");
    }
}

#[test]
fn the_large_segment_is_read_first_and_sets_the_slack() {
    let config = parsed("max_split_size_mb:32,large_segment_size_mb:32");
    assert_eq!((config.large_segment_size, config.max_non_split_rounding), (32 * MIB, 32 * MIB));
    assert_eq!(parsed("max_non_split_rounding_mb:64,large_segment_size_mb:32").max_non_split_rounding, 64 * MIB);
    assert!(Config::default().apply("max_split_size_mb:31,large_segment_size_mb:32").is_err());
}

#[test]
fn a_second_text_resets_three_keys_and_keeps_the_others() {
    let mut config = parsed("max_split_size_mb:64,roundup_power2_divisions:4,garbage_collection_threshold:0.5,limit_mb:7");
    config.apply("max_non_split_rounding_mb:40").unwrap();
    assert_eq!(
        (config.max_split_size, config.roundup_power2_divisions, config.garbage_collection_threshold),
        (u64::MAX, [0; 16], 0.0)
    );
    assert_eq!((config.limit, config.max_non_split_rounding), (7 * MIB, 40 * MIB));
}

#[test]
fn what_is_wrong_is_named_with_what_is_allowed() {
    let keys = "the keys are policy, limit_mb, per_process_memory_fraction";
    let list = "allowed: in a list: SIZE:N, SIZE in MiB a power of two or >, N a power of two or 0";
    let table = [
        ("max_split:3", "there is no key \"max_split\"", keys),
        ("bad", "there is no key \"bad\"", keys),
        (":3", "there is no key \"\"", keys),
        ("limit_mb", "limit_mb is \"\"", "allowed: a whole number of MiB from 1"),
        ("policy:", "policy is \"\"", "allowed: linn or pytorch"),
        ("limit_mb:-1", "limit_mb is \"-1\"", "allowed: a whole number of MiB from 1"),
        ("limit_mb:\u{661}", "limit_mb is \"\u{661}\"", "allowed: a whole number of MiB from 1"),
        ("limit_mb:x,limit_mb:1", "limit_mb is \"x\"", "allowed: a whole number of MiB from 1"),
        ("policy:cuda", "policy is \"cuda\"", "allowed: linn or pytorch"),
        ("limit_mb:0", "limit_mb is \"0\"", "allowed: a whole number of MiB from 1"),
        ("max_split_size_mb:2", "max_split_size_mb is \"2\"", "allowed: a whole number of MiB from 20"),
        ("max_split_size_mb:18446744073709551615", "max_split_size_mb is", "allowed: a whole number of MiB from 20"),
        ("max_non_split_rounding_mb:x", "max_non_split_rounding_mb is \"x\"", "allowed: a whole number of MiB from 20"),
        ("large_segment_size_mb:10", "large_segment_size_mb is \"10\"", "allowed: a whole number of MiB from 11"),
        ("garbage_collection_threshold:1.2", "garbage_collection_threshold is \"1.2\"", "allowed: a number above 0 and below 1"),
        ("garbage_collection_threshold:0", "garbage_collection_threshold is \"0\"", "allowed: a number above 0 and below 1"),
        ("per_process_memory_fraction:1.5", "per_process_memory_fraction is \"1.5\"", "allowed: a number from 0 to 1"),
        ("per_process_memory_fraction:NaN", "per_process_memory_fraction is \"NaN\"", "allowed: a number from 0 to 1"),
        ("roundup_power2_divisions:3", "roundup_power2_divisions is \"3\"", "allowed: a power of two, or a list"),
        ("roundup_power2_divisions:[3:2]", "roundup_power2_divisions is \"3:2\"", list),
        ("roundup_power2_divisions:[4:3]", "roundup_power2_divisions is \"4:3\"", list),
        ("roundup_power2_divisions:0", "roundup_power2_divisions is \"0\"", "allowed: a power of two, or a list"),
        ("roundup_power2_divisions:[4:2", "roundup_power2_divisions is \"[4:2\"", "allowed: a power of two, or a list"),
        ("roundup_power2_divisions:[]", "roundup_power2_divisions is \"\"", list),
        ("roundup_power2_divisions:[4]", "roundup_power2_divisions is \"4\"", list),
        ("expandable_segments:true", "expandable_segments is \"true\"", "allowed: True or False"),
        ("policy:pytorch,expandable_segments:True", "expandable_segments is \"True\"", "allowed: False with policy:pytorch"),
    ];
    for (settings, fact, allowed) in table {
        let mut config = Config { limit: 5, ..Config::default() };
        let text = config.apply(settings).unwrap_err().to_string();
        let (first, help) = text.split_once('\n').unwrap();
        assert!(first.contains(fact), "{settings}: {first}");
        assert!(help.starts_with(&format!("help: {allowed}")), "{settings}: {help}");
        assert_eq!((config.limit, config.policy), (5, Policy::Linn), "nothing is changed");
    }
}

/// Settings made in code are not read from a text: what cannot be obeyed must not make blocks too small.
#[test]
fn divisions_in_code_that_are_no_powers_of_two_count_as_none() {
    for count in [0, 3, 1000, u64::MAX] {
        for policy in [Policy::Linn, Policy::Pytorch] {
            let config = Config { policy, roundup_power2_divisions: [count; 16], ..Config::default() };
            let mut device = SimDevice::new(1 << 40, config);
            for bytes in [1, 1000, 5 << 20 | 1, 84 * MIB] {
                let lease = device.alloc(StreamId::DEFAULT, bytes, Tag::here(Category::Temporary, "settings")).expect("room");
                assert!(lease.place.size >= bytes && lease.place.size.is_multiple_of(256), "{count} {bytes} {:?}", lease.place);
            }
            device.pool().validate().unwrap();
        }
    }
}

/// Reserved MiB after a sequence under policy linn.
fn reserved(settings: &str, megabytes: &[u64]) -> u64 {
    let mut device = SimDevice::new(1 << 40, parsed(settings));
    for bytes in megabytes {
        let tag = Tag::here(Category::Temporary, "settings");
        let lease = device.alloc(StreamId::DEFAULT, bytes * MIB, tag).expect("there is room");
        device.free(lease);
    }
    device.pool().validate().unwrap();
    device.pool().stats().reserved_bytes.peak / MIB
}

#[test]
fn policy_linn_obeys_those_that_mean_something_there() {
    assert_eq!(reserved("roundup_power2_divisions:4", &[84]), 96);
    assert_eq!(reserved("limit_mb:100", &[40, 90]), 90, "idle memory makes room");
    assert_eq!(reserved("limit_mb:200,per_process_memory_fraction:0.5", &[40, 90]), 90);
    let mut half = SimDevice::new(1 << 40, parsed("limit_mb:200,per_process_memory_fraction:0.5"));
    assert!(half.alloc(StreamId::DEFAULT, 101 * MIB, Tag::here(Category::Temporary, "settings")).is_err());
}
