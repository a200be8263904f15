//! Tables that fit the terminal: what is free text gives way, then columns that are spare. Ids never do.

use super::format::table;
use super::output::plain;
use super::transcript::text::width as wide;

/// How narrow a column of free text becomes at the most.
const NARROWEST: usize = 8;

/// Between two columns.
const GAP: usize = 2;

/// Rows under headings, in as much room as there is; all of them whole, if nothing is said of it. The columns in `free` are
/// shortened, the widest first; if that is not enough, those in `spare` are left out, in their order.
pub(super) fn fitted(
    headings: &[&str],
    rows: &[Vec<String>],
    room: Option<usize>,
    (free, spare): (&[&str], &[&str]),
) -> String {
    let Some(room) = room else { return table(headings, rows) };
    let mut left_out = 0;
    loop {
        let gone = &spare[..left_out];
        let kept: Vec<usize> =
            (0..headings.len()).filter(|at| !gone.contains(&headings[*at])).collect();
        let heads: Vec<&str> = kept.iter().map(|at| headings[*at]).collect();
        let mut cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| kept.iter().filter_map(|at| row.get(*at).map(|cell| line(cell))).collect())
            .collect();
        let mut widths: Vec<usize> = (0..heads.len())
            .map(|at| {
                let cells = cells.iter().filter_map(|row| row.get(at)).map(|cell| wide(cell));
                cells.max().unwrap_or(0).max(wide(heads[at]))
            })
            .collect();
        let is_free = |at: usize| free.contains(&heads[at]);
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        while total(&widths) > room
            && let Some(widest) = (0..heads.len())
                .filter(|at| is_free(*at) && widths[*at] > NARROWEST.max(wide(heads[*at])))
                .max_by_key(|at| widths[*at])
        {
            widths[widest] -= 1;
        }
        if total(&widths) > room && left_out < spare.len() {
            left_out += 1;
            continue;
        }
        for row in &mut cells {
            for (at, cell) in row.iter_mut().enumerate().filter(|(at, _)| is_free(*at)) {
                *cell = shortened(cell, widths[at]);
            }
        }
        return table(&heads, &cells);
    }
}

fn line(cell: &str) -> String {
    plain(cell).replace(['\n', '\t'], " ")
}

/// As much of a text as fits, with a sign that there is more.
fn shortened(text: &str, room: usize) -> String {
    if wide(text) <= room {
        return text.to_owned();
    }
    let mut cut = String::new();
    for letter in text.chars() {
        cut.push(letter);
        if wide(&cut) + 1 > room {
            cut.pop();
            break;
        }
    }
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    const HEADINGS: [&str; 4] = ["ID", "STATE", "AGE", "TITLE"];

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        vec![
            row(["0190aaaa", "active", "5 min", "A title that goes on and on"]),
            row(["0190bbbb", "paused", "1 d", "日本語のとても長い題名です"]),
        ]
    }

    fn shown(room: Option<usize>) -> String {
        fitted(&HEADINGS, &rows(), room, (&["TITLE"], &["AGE", "TITLE"]))
    }

    #[test]
    fn free_text_gives_way_then_spare_columns_and_ids_never() {
        assert_eq!(shown(None), table(&HEADINGS, &rows()));
        assert_eq!(shown(Some(100)), shown(None));
        assert_eq!(
            shown(Some(40)),
            "ID        STATE   AGE    TITLE\n\
             0190aaaa  active  5 min  A title that g…\n\
             0190bbbb  paused  1 d    日本語のとても…\n"
        );
        assert_eq!(
            shown(Some(28)),
            "ID        STATE   TITLE\n0190aaaa  active  A title t…\n0190bbbb  paused  日本語の…\n"
        );
        assert_eq!(shown(Some(20)), "ID        STATE\n0190aaaa  active\n0190bbbb  paused\n");
        assert_eq!(shown(Some(1)), shown(Some(20)));
    }

    proptest! {
        #[test]
        fn it_fits_if_it_can(room in 16_usize..120, title in "\\PC{0,60}") {
            let rows = vec![vec!["0190aaaa".to_owned(), "active".to_owned(), "1 d".to_owned(), title]];
            let text = fitted(&HEADINGS, &rows, Some(room), (&["TITLE"], &["AGE", "TITLE"]));
            prop_assert!(text.lines().all(|line| wide(line) <= room), "{text}");
            prop_assert!(text.contains("0190aaaa"));
        }
    }
}
