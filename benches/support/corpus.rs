//! Sessions as agents write them: transcript lines, deterministic, with file contents and tool
//! results that come back again and again, as they do when an agent reads the same file before and
//! after each edit.

/// A generator of transcript lines.
pub struct Corpus {
    state: u64,
    files: Vec<String>,
    session: String,
    event: u64,
    turn: u64,
    step: u64,
    phase: u8,
    file: usize,
}

const WORDS: &[&str] = &[
    "error", "value", "handler", "request", "config", "parse", "token", "session", "buffer",
    "index", "result", "channel", "update", "module", "return", "async", "state", "event", "cache",
    "write", "read", "flush", "segment", "record", "client", "server", "retry", "timeout", "queue",
    "worker",
];

impl Corpus {
    pub fn new(session: &str, seed: u64) -> Corpus {
        let mut corpus = Corpus {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            files: Vec::new(),
            session: session.to_owned(),
            event: 0,
            turn: 0,
            step: 0,
            phase: 0,
            file: 0,
        };
        for n in 0..12 {
            let lines = 20 + corpus.below(60);
            let mut text = format!("//! module {n}\\n");
            for line in 0..lines {
                text += &format!(
                    "    {:4}: let {} = {}({});\\n",
                    line,
                    corpus.word(),
                    corpus.word(),
                    corpus.words(3)
                );
            }
            corpus.files.push(text);
        }
        corpus
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }

    fn words(&mut self, n: usize) -> String {
        (0..n).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }

    /// The next line, without its line end.
    pub fn line(&mut self) -> Vec<u8> {
        let call = format!("call_{:016x}", self.turn * 1000 + self.step);
        let (kind, payload) = match self.phase {
            0 => {
                self.turn += 1;
                self.step = 0;
                let text = self.words(12);
                ("message", format!("{{\"role\": \"user\", \"content\": \"{text}\", \"metadata\": {{}}}}"))
            }
            1 => {
                self.step += 1;
                self.file = self.below(self.files.len());
                let text = self.words(20);
                let file = self.file;
                ("message", format!("{{\"role\": \"assistant\", \"content\": \"{text}\", \"metadata\": {{\"action_type\": \"tool_call\", \"tool_calls\": [{{\"id\": \"{call}\", \"name\": \"Read\", \"arguments\": {{\"path\": \"src/module_{file}.rs\"}}}}]}}}}"))
            }
            2 | 3 => {
                let status = if self.phase == 2 { "requested" } else { "started" };
                let file = self.file;
                ("tool_lifecycle", format!("{{\"tool_name\": \"Read\", \"tool_call_id\": \"{call}\", \"status\": \"{status}\", \"args\": {{\"path\": \"src/module_{file}.rs\"}}}}"))
            }
            4 | 5 => {
                let text = self.files[self.file].clone();
                if self.phase == 4 {
                    ("tool_lifecycle", format!("{{\"tool_name\": \"Read\", \"tool_call_id\": \"{call}\", \"status\": \"completed\", \"result\": {{\"status\": \"success\", \"text\": \"{text}\"}}}}"))
                } else {
                    ("message", format!("{{\"role\": \"tool\", \"content\": \"{text}\", \"metadata\": {{\"tool_name\": \"Read\", \"tool_call_id\": \"{call}\"}}}}"))
                }
            }
            _ => ("state_transition", "{\"from_state\": \"model_returned_tool_calls\", \"to_state\": \"tools_executed\", \"reason\": \"tools_executed\", \"details\": {}}".to_owned()),
        };
        let ends_turn = self.below(8) == 0;
        self.phase = match self.phase {
            6 if ends_turn => 0,
            6 => 1,
            phase => phase + 1,
        };
        if self.phase == 1 && self.below(5) == 0 {
            // An edit: one file is a little different from now on.
            let word = self.word();
            let file = self.below(self.files.len());
            self.files[file] += &format!("    // edited: {word}\\n");
        }
        let (a, b) = (self.next(), self.next());
        self.event += 1;
        let seconds = self.event / 3;
        format!(
            "{{\"event_id\": \"evt-{a:016x}{b:016x}\", \"timestamp\": \"2026-03-{:02}T{:02}:{:02}:{:02}.{:06}Z\", \"session_id\": \"{}\", \"run_id\": \"run-{}\", \"step\": {}, \"event_type\": \"{kind}\", \"payload\": {payload}, \"schema_version\": 1}}",
            1 + seconds / 86400 % 28, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60, a % 1_000_000,
            self.session, self.turn, self.step,
        )
        .into_bytes()
    }
}
