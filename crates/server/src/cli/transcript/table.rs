//! Tables: in columns where they fit, else a line for each cell.

use super::inline::{Style, inline};
use super::text::{Break, Look, Row, Span, width, wrap};

/// No column is made narrower than this before the table is told in another way.
const NARROWEST: usize = 8;

/// What stands between two columns.
const BETWEEN: &str = " │ ";

/// Whether a line may be the first of a table.
pub(super) fn may_begin(line: &str) -> bool {
    line.contains('|') && cells(line).len() > 1
}

/// Whether a line is the one below the headings: dashes only.
pub(super) fn is_ruler(line: &str, columns: usize) -> bool {
    let cells = cells(line);
    let is_dashes = |cell: &String| {
        let dashes = cell.trim_start_matches(':').trim_end_matches(':');
        !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')
    };
    cells.len() == columns && cells.iter().all(is_dashes)
}

/// What stands between the bars of a line.
pub(super) fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut chars = line.chars().peekable();
    let mut in_code = false;
    while let Some(c) = chars.next() {
        let cell = cells.last_mut().expect("there is always one");
        match c {
            '\\' if chars.peek() == Some(&'|') => cell.extend(chars.next()),
            '`' => {
                in_code = !in_code;
                cell.push(c);
            }
            '|' if !in_code => cells.push(String::new()),
            c => cell.push(c),
        }
    }
    if cells.last().is_some_and(|cell| cell.trim().is_empty()) && cells.len() > 1 {
        cells.pop();
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// A table whose first line has the headings; the second, which is only dashes, is left out.
pub(super) fn table(lines: &[String], room: usize, style: Style) -> Vec<Row> {
    let headings = cells(lines.first().map_or("", String::as_str));
    let columns = headings.len();
    let spans = |cell: &String, look: Look| inline(cell, look, style);
    let head: Vec<Vec<Span>> = headings.iter().map(|cell| spans(cell, Look::BOLD)).collect();
    let body = lines.iter().skip(2).map(|line| {
        let mut cells = cells(line);
        cells.resize(columns, String::new());
        cells.iter().map(|cell| spans(cell, Look::PLAIN)).collect()
    });
    let body: Vec<Vec<Vec<Span>>> = body.collect();
    let Some(widths) = fit(&natural(&head, &body), room) else {
        return records(&headings, &body, room);
    };
    let mut rows = line(&head, &widths);
    let ruler: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    rows.push(Row::of(&ruler.join("─┼─"), Look::DIM));
    for cells in &body {
        rows.extend(line(cells, &widths));
    }
    rows
}

/// How wide each column would like to be.
fn natural(head: &[Vec<Span>], body: &[Vec<Vec<Span>>]) -> Vec<usize> {
    let mut widths = vec![1; head.len()];
    for cells in std::iter::once(head).chain(body.iter().map(Vec::as_slice)) {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(Row::new(cell.clone()).width());
        }
    }
    widths
}

/// The widths that fit: the widest columns give way. Nothing, if they cannot.
fn fit(natural: &[usize], room: usize) -> Option<Vec<usize>> {
    let mut widths = natural.to_vec();
    let between = width(BETWEEN) * widths.len().saturating_sub(1);
    let room = room.checked_sub(between)?;
    while widths.iter().sum::<usize>() > room {
        let widest = widths.iter_mut().max()?;
        if *widest <= NARROWEST {
            return None;
        }
        *widest -= 1;
    }
    Some(widths)
}

/// One line of a table, in as many rows as its highest cell.
fn line(cells: &[Vec<Span>], widths: &[usize]) -> Vec<Row> {
    let none = Row::default();
    let cells: Vec<Vec<Row>> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| wrap(cell, *width, (&none, &none), Break::Words))
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut rows = Vec::new();
    for index in 0..height {
        let mut row = Row::default();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if column > 0 {
                row.push(Span::new(BETWEEN, Look::DIM));
            }
            let part = cell.get(index).cloned().unwrap_or_default();
            let is_last = column + 1 == widths.len();
            let part = if is_last { part } else { part.filled(*width) };
            row = part.after(&row);
        }
        rows.push(row);
    }
    rows
}

/// For a terminal that is too narrow: each cell with its heading, lines apart from each other.
fn records(headings: &[String], body: &[Vec<Vec<Span>>], room: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, cells) in body.iter().enumerate() {
        if index > 0 {
            rows.push(Row::of(&"─".repeat(room.min(NARROWEST)), Look::DIM));
        }
        for (heading, cell) in headings.iter().zip(cells) {
            let mut spans = vec![Span::new(&format!("{heading}: "), Look::BOLD)];
            spans.extend(cell.iter().cloned());
            let indent = Row::of("  ", Look::PLAIN);
            rows.extend(wrap(&spans, room, (&Row::default(), &indent), Break::Words));
        }
    }
    rows
}
