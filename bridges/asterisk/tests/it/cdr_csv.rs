//! Tests of CDR rows in all layouts, which are those of Asterisk's `cdr_csv.c` (16 to 21 columns),
//! `cdr_custom.conf.sample`, FreePBX's report export, and a billing report. Names, numbers, and IDs
//! are made up.

use callbridge_call::{Cdr, EventTime, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames, Unreadable};
use std::borrow::Cow;

const SIXTEEN: &str = concat!(
    r#""acct","998901110001","100","did","""Ann, ""the"" B"" <998901110001>","#,
    r#""PJSIP/city-0000000a","PJSIP/101-0000000b","Dial","PJSIP/101,20,tT","#,
    r#""2026-11-20 10:00:00","2026-11-20 10:00:05","2026-11-20 10:01:00","#,
    r#"60,55,"ANSWERED","DOCUMENTATION""#
);

/// Returns the CDR in each row of a file, or why the row can't be read.
fn rows(text: &str) -> Vec<Result<Cdr<'static>, Unreadable>> {
    let mut decoder = Decoder::new(Format::CdrCsv, DecoderSettings::default());
    let mut rows = Vec::new();
    for frame in Frames::new(Format::CdrCsv, text.as_bytes()) {
        let Frame::Message(row) = frame else {
            continue;
        };
        match decoder.decode(row) {
            Decoded::Event { received, .. } => match received.event {
                PbxEvent::Cdr(cdr) => rows.push(Ok(copy_cdr(&cdr))),
                other => panic!("{other:?}"),
            },
            Decoded::Skipped | Decoded::Call(_) => {}
            Decoded::Unreadable(why) => rows.push(Err(why)),
        }
    }
    rows
}

/// Returns a copy with only the fields that tests check.
fn copy_cdr(cdr: &Cdr<'_>) -> Cdr<'static> {
    Cdr {
        uniqueid: owned(&cdr.uniqueid),
        linkedid: owned(&cdr.linkedid),
        channel: owned(&cdr.channel),
        dest_channel: owned(&cdr.dest_channel),
        source: owned(&cdr.source),
        destination: owned(&cdr.destination),
        did: owned(&cdr.did),
        caller_id: owned(&cdr.caller_id),
        last_app: owned(&cdr.last_app),
        last_data: owned(&cdr.last_data),
        disposition: owned(&cdr.disposition),
        userfield: owned(&cdr.userfield),
        duration_micros: cdr.duration_micros,
        billed_micros: cdr.billed_micros,
        started_at: cdr.started_at,
        answered_at: cdr.answered_at,
        ended_at: cdr.ended_at,
        zoneless: cdr.zoneless,
        ..Cdr::default()
    }
}

fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}

fn single_row(text: &str) -> Cdr<'static> {
    let mut rows = rows(text);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0).expect("a record")
}

/// Returns the unique ID, linkedid, and user field of a row that starts with [`SIXTEEN`].
fn ids(more: &str) -> [String; 3] {
    let cdr = single_row(&format!("{SIXTEEN}{more}\n"));
    assert_eq!(cdr.channel, "PJSIP/city-0000000a", "{more}");
    assert_eq!(cdr.caller_id, r#""Ann, "the" B" <998901110001>"#, "{more}");
    let ids = [cdr.uniqueid, cdr.linkedid, cdr.userfield];
    ids.map(|id| id.into_owned())
}

#[test]
fn cdr_row_of_16_to_22_columns_yields_ids_and_userfield() {
    let (id, user, new) = (r#","pbx-1.2""#, r#","lead=7""#, r#","p","1.1",9"#);
    assert_eq!(ids(""), ["", "", ""]);
    assert_eq!(ids(id), ["pbx-1.2", "", ""]);
    assert_eq!(ids(user), ["", "", "lead=7"]);
    assert_eq!(ids(&format!("{id}{user}")), ["pbx-1.2", "", "lead=7"]);
    assert_eq!(ids(new), ["", "1.1", ""]);
    assert_eq!(ids(&format!("{id}{new}")), ["pbx-1.2", "1.1", ""]);
    assert_eq!(ids(&format!("{user}{new}")), ["", "1.1", "lead=7"]);
    assert_eq!(
        ids(&format!("{id}{user}{new}")),
        ["pbx-1.2", "1.1", "lead=7"]
    );
    let more = format!("{id}{user}{new},\"an own column\"");
    assert_eq!(ids(&more), ["pbx-1.2", "1.1", "lead=7"]);
    assert_eq!(
        ids(&format!(",{user}")),
        ["", "", "lead=7"],
        "an empty unique id"
    );
}

#[test]
fn torn_row_is_unreadable_and_other_rows_are_read() {
    for cut in [10, 60, 150, 200, SIXTEEN.len() - 40] {
        let torn = &SIXTEEN[cut..];
        let rows = rows(&format!(
            "{torn}\n{SIXTEEN},\"1.2\",\"\"\n{SIXTEEN},\"1.3\",\"\"\n"
        ));
        let read: Vec<bool> = rows.iter().map(Result::is_ok).collect();
        assert_eq!(read, [false, true, true], "{torn}");
    }
    assert_eq!(rows("\"\",\"1\",\"2\"\n"), [Err(Unreadable::NotACdr)]);
}

#[test]
fn line_ends_in_a_quoted_field_are_part_of_the_field() {
    let text = SIXTEEN.replace("Ann, ", "Ann\r\nof the\n");
    let cdr = single_row(&format!("{text},\"1.2\",\"two\nlines\"\n"));
    assert_eq!(cdr.userfield, "two\nlines");
    assert!(cdr.caller_id.contains("of the"));
}

#[test]
fn cdr_custom_row_is_recognized_by_positions_of_times() {
    let row = concat!(
        r#"""Ann" <101>","101","998901110001","internal","PJSIP/101-0000000b","#,
        r#""PJSIP/city-0000000a","Dial","PJSIP/998901110001@city","#,
        r#""2026-11-20 10:00:00","","2026-11-20 10:00:20","20","0","NO ANSWER","3","","#,
        r#""1.2","lead=7","5""#
    );
    let cdr = single_row(row);
    assert_eq!(
        (&*cdr.source, &*cdr.dest_channel),
        ("101", "PJSIP/city-0000000a")
    );
    assert_eq!((&*cdr.uniqueid, &*cdr.userfield), ("1.2", "lead=7"));
    assert_eq!(
        (cdr.duration_micros, cdr.answered_at),
        (Some(20_000_000), None)
    );
}

#[test]
fn header_names_the_columns_of_tables_and_reports() {
    let table = "calldate;clid;src;dst;dcontext;channel;dstchannel;lastapp;lastdata;duration;\
        billsec;disposition;amaflags;accountcode;uniqueid;userfield;did;linkedid\n\
        2026-11-20 10:00:00;Ann <101>;101;998901110001;internal;PJSIP/101-0000000b;\
        PJSIP/city-0000000a;Dial;PJSIP/998901110001@city,20;87;62;ANSWERED;3;;\
        1795168800.2;;998712001122;\
        1795168800.2\n";
    let cdr = single_row(table);
    assert_eq!(
        (&*cdr.linkedid, cdr.billed_micros),
        ("1795168800.2", Some(62_000_000))
    );
    assert_eq!((&*cdr.did, &*single_row(SIXTEEN).did), ("998712001122", ""));
    let lasted = cdr
        .ended_at
        .expect("an end")
        .since(cdr.started_at.expect("a start"));
    assert_eq!(lasted.as_secs(), 87, "an end follows from the duration");
    let report = "Unique ID,Account Code,Source,Destination,Context,Caller Id,Source Channel,\
        Destination Channel,Last App,Last App Arg,Start Time,Answered Time,End Time,\
        Duration (secs),Billable (secs),Disposition,AMA Flags,Userfield\n\
        1795168800.2,a,101,998901110001,internal,101,Zap/8-1,Zap/18-1,Dial,Zap/g1/998901110001|60,\
        2026-11-20 10:00:00,2026-11-20 10:00:16,2026-11-20 10:01:05,65,49,ANSWERED,3,lead=7\n";
    let cdr = single_row(report);
    assert_eq!((&*cdr.channel, &*cdr.dest_channel), ("Zap/8-1", "Zap/18-1"));
    assert_eq!(
        (cdr.billed_micros, &*cdr.userfield),
        (Some(49_000_000), "lead=7")
    );
}

const HEADER: [&str; 12] = [
    "calldate",
    "clid",
    "src",
    "dst",
    "channel",
    "dstchannel",
    "lastapp",
    "lastdata",
    "duration",
    "billsec",
    "disposition",
    "uniqueid",
];

/// Returns a call's row with nine commas in `lastdata`, as with FreePBX's queues.
fn queue_row(delimiter: &str) -> String {
    let fields = [
        "2026-11-20 10:00:00",
        "\"Ann\" <101>",
        "998901110001",
        "400",
        "PJSIP/city-0000000a",
        "PJSIP/101-0000000b",
        "Queue",
        "400,t,,,,,,,,",
        "60",
        "40",
        "ANSWERED",
        "1795168800.2",
    ];
    fields.join(delimiter)
}

#[test]
fn header_decides_the_delimiter_of_the_file() {
    for delimiter in [";", "|", "\t"] {
        let header = HEADER.join(delimiter);
        let row = queue_row(delimiter);
        let cdr = single_row(&format!("{header}\n{row}\n"));
        assert_eq!(cdr.last_data, "400,t,,,,,,,,", "{delimiter:?}");
        assert_eq!(cdr.dest_channel, "PJSIP/101-0000000b");
        assert_eq!(
            (&*cdr.uniqueid, cdr.billed_micros),
            ("1795168800.2", Some(40_000_000))
        );
    }
}

#[test]
fn row_with_more_or_fewer_fields_than_header_is_unreadable() {
    let header = HEADER.join(",");
    let quoted = queue_row(",").replace("400,t,,,,,,,,", "\"400,t,,,,,,,,\"");
    let torn = &quoted[..quoted.len() - 20];
    let text = format!("{header}\n{}\n{torn}\n{quoted}\n", queue_row(","));
    let rows = rows(&text);
    assert_eq!(
        rows[..2],
        [Err(Unreadable::OtherColumns), Err(Unreadable::OtherColumns)]
    );
    assert_eq!(rows[2].as_ref().expect("quoted").last_data, "400,t,,,,,,,,");
}

#[test]
fn missing_header_column_is_named_in_the_error() {
    for (missing, place) in [("channel", 4), ("dstchannel", 5), ("disposition", 10)] {
        let mut names = HEADER.to_vec();
        names.remove(place);
        let mut row: Vec<String> = queue_row(";").split(';').map(str::to_owned).collect();
        row.remove(place);
        let text = format!("{}\n{}\n", names.join(";"), row.join(";"));
        assert_eq!(rows(&text), [Err(Unreadable::NoColumn(missing))]);
    }
}

#[test]
fn first_row_decides_the_delimiter_of_a_file_without_a_header() {
    let plain = SIXTEEN.replace('"', "").replace("Ann, the B", "Ann");
    for delimiter in [";", "|", "\t"] {
        let fields: Vec<&str> = plain.split(',').collect();
        let (data, times) = (fields[8..11].join(","), fields[11..].join(delimiter));
        let row = [&fields[..8].join(delimiter), data.as_str(), &times].map(str::to_owned);
        let row = row.join(delimiter);
        let text = format!("{row}{delimiter}1.2\n{SIXTEEN}\n{row}{delimiter}1.3\n");
        let rows = rows(&text);
        let read: Vec<bool> = rows.iter().map(Result::is_ok).collect();
        assert_eq!(read, [true, false, true], "{text}");
        let first = rows[0].as_ref().expect("a record");
        assert_eq!(
            (&*first.last_data, &*first.uniqueid),
            ("PJSIP/101,20,tT", "1.2")
        );
    }
}

#[test]
fn columns_flag_names_the_columns_of_a_table_without_a_header() {
    let columns = HEADER.join(",");
    let settings = DecoderSettings {
        columns: Some(columns.parse().expect("all columns")),
        ..DecoderSettings::default()
    };
    let mut decoder = Decoder::new(Format::CdrCsv, settings);
    let torn = "2026-11-20 10:00:00;\"Ann\" <101>;998901110001";
    assert!(matches!(
        decoder.decode(torn.as_bytes()),
        Decoded::Unreadable(_)
    ));
    let row = queue_row(";");
    let Decoded::Event { received, .. } = decoder.decode(row.as_bytes()) else {
        panic!("no record")
    };
    let PbxEvent::Cdr(cdr) = &received.event else {
        panic!("{received:?}")
    };
    assert_eq!(
        (&*cdr.channel, &*cdr.last_data),
        ("PJSIP/city-0000000a", "400,t,,,,,,,,")
    );
    let missing = columns
        .replace(",dstchannel", "")
        .parse::<callbridge_asterisk::CsvColumns>();
    let missing = missing.expect_err("dstchannel is missing").to_string();
    assert_eq!(missing, "a CDR table needs the column dstchannel");
    assert_eq!(
        rows(&format!("{row}\n")),
        [Err(Unreadable::NotACdr)],
        "without the flag"
    );
}

#[test]
fn null_values_of_a_database_are_read_as_empty() {
    for missing in ["NULL", "\\N", "null", "(null)", "None", ""] {
        let header = HEADER.join(";");
        let row = queue_row(";")
            .replace("1795168800.2", missing)
            .replace(";400;", &format!(";{missing};"));
        let cdr = single_row(&format!("{header}\n{row}\n"));
        assert_eq!((&*cdr.uniqueid, &*cdr.destination), ("", ""), "{missing}");
    }
}

#[test]
fn high_resolution_durations_and_epochs_are_read() {
    let row = concat!(
        r#""""Ann"" <101>","101","998901110001","internal","PJSIP/101-0000000b","#,
        r#""PJSIP/city-0000000a","Dial","PJSIP/998901110001@city","#,
        r#""1795168800.250000","0.000000","1795168820.500113","20.250113","0.000000","#,
        r#""NO ANSWER","3","","1795168800.2","","5""#
    );
    let cdr = single_row(row);
    assert_eq!(
        (cdr.duration_micros, cdr.billed_micros),
        (Some(20_250_113), Some(0))
    );
    assert_eq!(cdr.answered_at, None);
    let lasted = cdr
        .ended_at
        .expect("an end")
        .since(cdr.started_at.expect("a start"));
    assert_eq!(lasted.as_micros(), 20_250_113);
}

#[test]
fn row_of_freeswitch_is_not_read_as_a_missed_call() {
    let row = SIXTEEN.replace(
        "PJSIP/city-0000000a",
        "sofia/external/998901110001@192.0.2.7",
    );
    let row = row.replace("ANSWERED", "NORMAL_CLEARING");
    assert_eq!(rows(&format!("{row}\n")), [Err(Unreadable::SwitchCdr)]);
    let header = HEADER.join(";");
    let row = queue_row(";").replace("PJSIP/city-0000000a", "sofia/external/998901110001");
    assert_eq!(
        rows(&format!("{header}\n{row}\n")),
        [Err(Unreadable::SwitchCdr)]
    );
}

/// A table row's columns and values. The values include everything that database clients have to
/// protect, such as a comma, quotes, a missing value, and leading digits.
const TABLE: [[&str; 2]; 12] = [
    ["calldate", "2026-03-02 15:00:00"],
    ["clid", r#""Bob, the builder" <998901110001>"#],
    ["src", "998901110001"],
    ["dst", "101"],
    ["channel", "PJSIP/city-00000001"],
    ["dstchannel", "PJSIP/101-00000002"],
    ["lastapp", "Dial"],
    ["lastdata", "PJSIP/101,20"],
    ["duration", "30"],
    ["billsec", "22"],
    ["disposition", "ANSWERED"],
    ["uniqueid", "1772445600.1"],
];

/// Returns the table's header and its row. `cell` formats each cell, given its value and its
/// column's width.
fn write_table(delimiter: &str, cell: impl Fn(&str, usize) -> String) -> [String; 2] {
    let line = |at: usize| {
        let cells = TABLE.map(|column| cell(column[at], column[0].len().max(column[1].len())));
        cells.join(delimiter)
    };
    [line(0), line(1)]
}

fn quoted(value: &str, quote: &str) -> String {
    format!("\"{}\"", value.replace('"', quote))
}

/// Returns the table as exported by several programs.
fn exported_tables() -> Vec<(&'static str, String)> {
    let [names, row] = write_table(",", |value, _| quoted(value, "\"\""));
    let mut tables = vec![("cdr_custom with a header", format!("{names}\n{row}\n"))];
    let [_, escaped] = write_table(",", |value, _| quoted(value, "\\\""));
    tables.push(("MySQL", format!("{names}\n{escaped}\n")));
    let [_, spaced] = write_table(", ", |value, _| quoted(value, "\"\""));
    tables.push(("a blank after the comma", format!("{names}\n{spaced}\n")));
    let [_, char_columns] = write_table(",", |value, width| {
        quoted(&format!("{value:width$}"), "\"\"")
    });
    tables.push(("CHAR columns", format!("{names}\n{char_columns}\n")));
    let [_, texts] = write_table(",", |value, _| quoted(&format!("'{value}"), "\"\""));
    tables.push(("texts of a spreadsheet", format!("{names}\n{texts}\n")));
    let [_, formulas] = write_table(",", |value, _| match value.parse::<f64>() {
        Ok(_) => format!("\"=\"\"{value}\"\"\""),
        Err(_) => quoted(value, "\"\""),
    });
    tables.push((
        "formulas of a spreadsheet",
        format!("{names}\n{formulas}\n"),
    ));
    let [names, row] = write_table("|", |value, width| format!(" {value:width$} "));
    let line = "-".repeat(20) + "+" + &"-".repeat(30);
    tables.push(("psql", format!("{names}\n{line}\n{row}\n(1 row)\n\n")));
    let boxed =
        format!("+{line}+\n|{names}|\n+{line}+\n|{row}|\n+{line}+\n1 row in set (0.00 sec)\n");
    tables.push(("mysql", boxed));
    let markdown = format!("|{names}|\n|{}|\n|{row}|\n", line.replace('+', "|"));
    tables.push(("sqlite3 -markdown", markdown));
    tables.push((
        "two exports in one file",
        format!("\u{feff}{names}\r\n\u{feff}{row}\r\n"),
    ));
    tables
}

#[test]
fn table_is_read_alike_from_every_program_that_exports_it() {
    let mut expected = None;
    for (program, text) in exported_tables() {
        let cdr = single_row(&text);
        assert_eq!(
            cdr.started_at,
            Some(EventTime::from_seconds(1_772_445_600)),
            "{program}"
        );
        let expected = expected.get_or_insert_with(|| cdr.clone());
        let comparable = Cdr {
            // Without quotes around it, the name loses its own.
            caller_id: expected.caller_id.clone(),
            ..cdr
        };
        assert_eq!(&comparable, expected, "{program}");
    }
}

/// Returns the CDR of a table row in which one column has a different value.
fn row_with(column: &str, value: &str) -> Result<Cdr<'static>, Unreadable> {
    let row = TABLE.map(|[name, usual]| quoted(if name == column { value } else { usual }, "\"\""));
    let names = TABLE.map(|[name, _]| name);
    let mut rows = rows(&format!("{}\n{}\n", names.join(","), row.join(",")));
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

#[test]
fn start_is_read_in_every_form_that_a_spreadsheet_leaves() {
    let id = EventTime::from_seconds(1_772_445_600);
    for start in [
        "2026-03-02 15:00:00",
        " 2026-03-02 15:00:00 ",
        "'2026-03-02 15:00:00",
        "02.03.2026 15:00",
        "02.03.26 15:00",
        "3/2/2026 15:00",
        "3/2/2026 3:00 PM",
        "3/2/2026 3:00:00 PM",
        "2026-03-02 03:00:00 PM",
        "1772445600",
        "1772445600000",
        "0000-00-00 00:00:00",
    ] {
        let cdr = row_with("calldate", start).expect(start);
        assert_eq!((cdr.started_at, cdr.zoneless), (Some(id), false), "{start}");
        let end = cdr.ended_at.map(|end| end.since(id).as_secs());
        assert_eq!(end, Some(30), "{start}");
    }
}

#[test]
fn value_that_cannot_be_read_safely_makes_the_row_unreadable() {
    for (column, value, why) in [
        ("calldate", "yesterday", Unreadable::NoStart),
        ("calldate", "2026-03-02", Unreadable::NoStart),
        ("uniqueid", "1.77245E+09", Unreadable::RoundedId),
        ("channel", " ", Unreadable::NoChannel),
        ("duration", "half a minute", Unreadable::NoCount("duration")),
    ] {
        assert_eq!(row_with(column, value), Err(why), "{column} {value}");
    }
    // Without an ID, there's no way to recover a lost start.
    let table = exported_tables().swap_remove(0).1;
    let lost = table
        .replace("2026-03-02 15:00:00", "0000-00-00 00:00:00")
        .replace("1772445600.1", "");
    assert_eq!(rows(&lost), [Err(Unreadable::NoStart)]);
}
