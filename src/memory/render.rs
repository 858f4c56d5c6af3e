//! The memory as text: a line per item, in groups, what is open first. What is over the budget is
//! cut at the end, never inside of a character that a reader sees as one.

use unicode_segmentation::UnicodeSegmentation;

use super::{Item, SessionMemory};

const CUT: &str = "\n[cut off]";

/// `words` gives the text of an item.
pub(super) fn render(
    memory: &SessionMemory,
    budget: usize,
    words: &dyn Fn(&Item) -> String,
) -> String {
    let mut lines = Vec::new();
    if let Some(source) = memory.source() {
        lines.push("## Session memory".to_owned());
        let (start, end) = (&source.start_event_id, &source.end_event_id);
        lines.push(on_a_line(&format!("From events {start} to {end}")));
    }
    if let Some(goal) = memory.current_goal() {
        lines.push(on_a_line(&format!("Current goal: {}", words(goal))));
    }
    let dropped = memory.dropped();
    let (todo, verification) = (memory.todo_items(), memory.verification_status());
    let groups: [(&str, Vec<&Item>, u64); 5] = [
        ("To do:", todo.iter().collect(), dropped.todo_items),
        ("Verification:", verification.iter().collect(), dropped.verification_status),
        ("Decisions:", memory.key_decisions().collect(), dropped.key_decisions),
        ("Failed:", memory.failed_attempts().collect(), dropped.failed_attempts),
        ("Done:", memory.completed_work().collect(), dropped.completed_work),
    ];
    for (heading, items, dropped) in groups {
        if items.is_empty() {
            continue;
        }
        lines.push(heading.to_owned());
        if dropped > 0 {
            lines.push(format!("- and {dropped} before"));
        }
        lines.extend(items.into_iter().map(|item| on_a_line(&format!("- {}", words(item)))));
    }
    cut(&lines.join("\n"), budget)
}

/// Text from outside makes no line of its own, and no sign that a model must not get.
fn on_a_line(text: &str) -> String {
    let plain = |c: char| match c {
        '\0' => '\u{FFFD}',
        '\u{2028}' | '\u{2029}' => ' ',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(plain).collect()
}

/// The text, at most `budget` characters.
fn cut(text: &str, budget: usize) -> String {
    if text.chars().count() <= budget {
        return text.to_owned();
    }
    let mark = if budget > CUT.chars().count() { CUT } else { "" };
    let mut left = budget - mark.chars().count();
    let mut kept = String::new();
    for grapheme in text.graphemes(true) {
        let length = grapheme.chars().count();
        if length > left {
            break;
        }
        left -= length;
        kept.push_str(grapheme);
    }
    format!("{}{mark}", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_budget_is_kept_in_characters(text in any::<String>(), budget in 0usize..80) {
            let cut = cut(&text, budget);
            prop_assert!(cut.chars().count() <= budget);
            let kept = cut.strip_suffix(CUT).unwrap_or(&cut);
            prop_assert!(text.starts_with(kept));
        }
    }

    #[test]
    fn what_reads_as_one_character_is_not_cut_apart() {
        let family = "👨‍👩‍👧‍👦";
        let text = format!("a{family}{family}");
        assert_eq!(cut(&text, 8), format!("a{family}"));
        assert_eq!(cut(&text, 7), "a");
    }
}
