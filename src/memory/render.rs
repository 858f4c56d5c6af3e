//! The memory as text: a line per item, in groups, what is open first. What is over the budget is
//! cut at the end, never inside of a character that a reader sees as one.

use unicode_segmentation::UnicodeSegmentation;

use super::SessionMemory;

const CUT: &str = "\n[cut off]";

pub(super) fn render(memory: &SessionMemory, budget: usize) -> String {
    let mut lines = Vec::new();
    if let Some(source) = memory.source() {
        lines.push("## Session memory".to_owned());
        lines.push(format!("From events {} to {}", source.start_event_id, source.end_event_id));
    }
    if let Some(goal) = memory.current_goal() {
        lines.push(format!("Current goal: {}", goal.text));
    }
    let dropped = memory.dropped();
    let owned = |items: &mut dyn Iterator<Item = &super::Item>| items.cloned().collect::<Vec<_>>();
    for (heading, items, dropped) in [
        ("To do:", memory.todo_items(), 0),
        ("Verification:", memory.verification_status(), dropped.verification_status),
        ("Decisions:", owned(&mut memory.key_decisions()), dropped.key_decisions),
        ("Failed:", owned(&mut memory.failed_attempts()), dropped.failed_attempts),
        ("Done:", owned(&mut memory.completed_work()), dropped.completed_work),
    ] {
        if items.is_empty() {
            continue;
        }
        lines.push(heading.to_owned());
        if dropped > 0 {
            lines.push(format!("- and {dropped} before"));
        }
        lines.extend(items.into_iter().map(|item| format!("- {}", item.text)));
    }
    cut(&lines.join("\n"), budget)
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
