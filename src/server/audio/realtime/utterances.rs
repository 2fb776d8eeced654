//! The sounds of a session. Each is transcribed between two commits: one starts it, and a final one
//! says that its samples are complete. Samples may arrive before the start.

use std::collections::VecDeque;

use super::events::Refused;
use crate::engine::{LiveSound, SoundPiece};

/// Most sounds of a session that wait, or are transcribed.
const UTTERANCES_MAX: usize = 8;

/// The sounds of a session that are not transcribed yet, in order. Only the first is transcribed.
#[derive(Default)]
pub(super) struct Utterances(VecDeque<Utterance>);

struct Utterance {
    /// `None` once it has failed: its further samples are dropped.
    sound: Option<LiveSound>,
    is_started: bool,
    is_complete: bool,
}

impl Utterance {
    fn new(sound: LiveSound) -> Self {
        Self { sound: Some(sound), is_started: false, is_complete: false }
    }
}

impl Utterances {
    /// Adds samples to the sound that is not complete. `fresh` makes a sound without samples.
    ///
    /// # Errors
    /// [`Refused`] if there are too many samples or sounds. Nothing is added then.
    pub(super) fn append(
        &mut self,
        samples: Vec<f32>,
        fresh: impl FnOnce() -> LiveSound,
    ) -> Result<(), Refused> {
        let Some(sound) = &mut self.incomplete(fresh)?.sound else { return Ok(()) };
        sound.push(samples).map_err(|error| Refused::new("invalid_audio", error.to_string()))
    }

    /// Starts the next sound. No effect while one whose samples arrive is transcribed.
    ///
    /// # Errors
    /// [`Refused`] if too many sounds wait.
    pub(super) fn start(&mut self, fresh: impl FnOnce() -> LiveSound) -> Result<(), Refused> {
        let utterance = match self.0.iter().position(|utterance| !utterance.is_started) {
            Some(index) => self.0.get_mut(index),
            None => Some(self.incomplete(fresh)?),
        };
        if let Some(utterance) = utterance {
            utterance.is_started = true;
        }
        Ok(())
    }

    /// Marks the samples of the last sound as complete.
    pub(super) fn complete(&mut self) {
        let Some(last) = self.0.back_mut() else { return };
        last.is_complete = true;
        match &mut last.sound {
            Some(sound) => sound.end(),
            None => drop(self.0.pop_back()),
        }
    }

    /// Returns whether the first sound is to be transcribed.
    pub(super) fn is_started(&self) -> bool {
        self.0.front().is_some_and(|first| first.is_started && first.sound.is_some())
    }

    /// Returns whether the next part of the first sound can be cut.
    pub(super) fn has_piece(&self) -> bool {
        let sound = self.0.front().and_then(|first| first.sound.as_ref());
        self.is_started() && sound.is_some_and(|sound| !sound.needs_samples())
    }

    /// Cuts the next part of the first sound.
    pub(super) fn next_piece(&mut self) -> Option<SoundPiece> {
        self.0.front_mut()?.sound.as_mut()?.next_piece()
    }

    /// Removes the first sound, which was transcribed.
    pub(super) fn finish(&mut self) {
        self.0.pop_front();
    }

    /// Ends the first sound, whose transcription failed. Those of its samples that are still to
    /// arrive are dropped.
    pub(super) fn fail(&mut self) {
        match self.0.front_mut() {
            Some(first) if !first.is_complete => first.sound = None,
            _ => self.finish(),
        }
    }

    /// Returns whether the first sound is transcribed and needs nothing more of the client.
    pub(super) fn is_complete(&self) -> bool {
        self.is_started() && self.0.front().is_some_and(|first| first.is_complete)
    }

    /// Returns whether no sound is started, nor has samples.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of samples that wait.
    pub(super) fn num_waiting(&self) -> usize {
        let sounds = self.0.iter().filter_map(|utterance| utterance.sound.as_ref());
        sounds.map(LiveSound::num_waiting).sum()
    }

    /// Returns the sound whose samples arrive.
    fn incomplete(&mut self, fresh: impl FnOnce() -> LiveSound) -> Result<&mut Utterance, Refused> {
        if self.0.back().is_none_or(|last| last.is_complete) {
            if self.0.len() == UTTERANCES_MAX {
                let message = format!("at most {UTTERANCES_MAX} sounds of a session may wait");
                return Err(Refused::new("processing_error", message));
            }
            self.0.push_back(Utterance::new(fresh()));
        }
        let last = self.0.len() - 1;
        Ok(&mut self.0[last])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 16_000;

    fn fresh() -> LiveSound {
        LiveSound::new(RATE, 2)
    }

    fn seconds(number: u32) -> Vec<f32> {
        vec![0.25; (RATE * number) as usize]
    }

    fn lens(utterances: &mut Utterances) -> Vec<f64> {
        std::iter::from_fn(|| utterances.next_piece()).map(|piece| piece.seconds).collect()
    }

    #[test]
    fn parts_are_cut_while_samples_arrive() {
        let mut utterances = Utterances::default();
        utterances.append(seconds(5), fresh).unwrap();
        assert!(!utterances.has_piece(), "no commit has started it");
        utterances.start(fresh).unwrap();
        assert_eq!(lens(&mut utterances), [1.0, 1.0, 1.0], "two seconds may be the last part");
        assert!(!utterances.has_piece());
        utterances.append(seconds(1), fresh).unwrap();
        utterances.start(fresh).unwrap();
        utterances.complete();
        assert_eq!(lens(&mut utterances), [1.0, 2.0]);
        utterances.finish();
        assert!(utterances.is_empty());
    }

    #[test]
    fn samples_after_a_final_commit_are_of_the_next_sound() {
        let mut utterances = Utterances::default();
        utterances.start(fresh).unwrap();
        utterances.append(seconds(1), fresh).unwrap();
        utterances.complete();
        utterances.append(seconds(2), fresh).unwrap();
        utterances.complete();
        utterances.start(fresh).unwrap();
        assert_eq!(lens(&mut utterances), [1.0]);
        utterances.finish();
        assert!(utterances.is_started());
        assert_eq!(lens(&mut utterances), [2.0]);
    }

    #[test]
    fn a_failed_sound_takes_its_further_samples_with_it() {
        let mut utterances = Utterances::default();
        utterances.start(fresh).unwrap();
        utterances.append(seconds(1), fresh).unwrap();
        utterances.fail();
        utterances.append(seconds(1), fresh).unwrap();
        assert!(!utterances.is_started() && !utterances.is_empty());
        utterances.complete();
        assert!(utterances.is_empty());
        utterances.append(seconds(2), fresh).unwrap();
        utterances.start(fresh).unwrap();
        utterances.complete();
        assert_eq!(lens(&mut utterances), [2.0]);
        utterances.fail();
        assert!(utterances.is_empty());
    }

    #[test]
    fn sounds_and_their_lengths_are_bounded() {
        let mut utterances = Utterances::default();
        for _ in 0..UTTERANCES_MAX {
            utterances.append(seconds(1), fresh).unwrap();
            utterances.complete();
        }
        utterances.complete();
        let refused = utterances.append(seconds(1), fresh).unwrap_err();
        assert_eq!(refused.code, "processing_error");
        let mut utterances = Utterances::default();
        for _ in 0..60 {
            utterances.append(seconds(60), fresh).unwrap();
        }
        let refused = utterances.append(vec![0.0], fresh).unwrap_err();
        assert_eq!(refused.code, "invalid_audio");
        assert!(refused.message.contains("3600"), "{}", refused.message);
    }

    #[test]
    fn a_final_commit_without_samples_ends_an_empty_sound() {
        let mut utterances = Utterances::default();
        utterances.complete();
        assert!(utterances.is_empty());
        utterances.start(fresh).unwrap();
        utterances.complete();
        let piece = utterances.next_piece().unwrap();
        assert!(piece.is_last && piece.seconds == 0.0);
    }
}
