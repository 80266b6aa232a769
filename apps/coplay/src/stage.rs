//! Between a game and whoever shows it: scenes go one way, commands and pressed buttons the other.
//!
//! The game runs on a thread of its own and never waits for the front end: a scene is handed over by swapping two buffers, and where the front
//! end has its hands on them just then, the scene is left out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use crate::hands::Hands;
use crate::scene::{Command, Scene};

/// Commands that may wait; a person does not give more in a frame.
const WAITING: usize = 64;

#[derive(Debug, Default)]
struct Shared {
    scene: Mutex<(Scene, bool)>,
    over: AtomicBool,
    waker: OnceLock<Thread>,
    /// The front end can show something, or never will.
    ready: Mutex<bool>,
    turned_ready: Condvar,
}

/// The game's end.
#[derive(Debug)]
pub struct Stage {
    shared: Arc<Shared>,
    hands: Arc<Hands>,
    commands: Receiver<Command>,
    back: Scene,
    shown: u64,
}

/// The front end's end.
#[derive(Debug)]
pub struct View {
    shared: Arc<Shared>,
    hands: Arc<Hands>,
    commands: SyncSender<Command>,
    front: Scene,
}

/// A stage and the view of it.
pub fn stage() -> (Stage, View) {
    let (sender, receiver) = sync_channel(WAITING);
    let (shared, hands) = (Arc::new(Shared::default()), Arc::new(Hands::default()));
    let stage =
        Stage { shared: shared.clone(), hands: hands.clone(), commands: receiver, back: Scene::default(), shown: 0 };
    (stage, View { shared, hands, commands: sender, front: Scene::default() })
}

impl Stage {
    /// Waits until somebody can see it: windows take their time to open.
    pub fn wait(&self) {
        let ready = self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = self.shared.turned_ready.wait_while(ready, |ready| !*ready);
        drop(ready.unwrap_or_else(PoisonError::into_inner));
    }

    /// What is pressed.
    pub fn hands(&self) -> &Arc<Hands> {
        &self.hands
    }

    /// What somebody wants. When there is nobody to see it any more, or a signal asks for it, that is to end.
    pub fn poll_command(&mut self) -> Option<Command> {
        match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Disconnected) => Some(Command::Exit),
            Err(TryRecvError::Empty) => crate::stop::is_asked().then_some(Command::Exit),
        }
    }

    /// Shows a scene. `draw` gets one that was shown before, and sets all of it anew.
    pub fn show(&mut self, draw: impl FnOnce(&mut Scene)) {
        draw(&mut self.back);
        self.shown += 1;
        self.back.number = self.shown;
        if let Ok(mut shared) = self.shared.scene.try_lock() {
            std::mem::swap(&mut shared.0, &mut self.back);
            shared.1 = true;
        }
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.shared.waker.get() {
            thread.unpark();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.wake();
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.ready();
    }
}

impl View {
    /// The game can begin.
    pub fn ready(&self) {
        *self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.turned_ready.notify_all();
    }

    /// Takes the newest scene over; `false` if there is none since the last.
    pub fn look(&mut self) -> bool {
        let mut shared = self.shared.scene.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::take(&mut shared.1) {
            return false;
        }
        std::mem::swap(&mut shared.0, &mut self.front);
        true
    }

    /// The scene that was taken over last.
    pub fn scene(&self) -> &Scene {
        &self.front
    }

    /// Whether the game is over.
    pub fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Acquire)
    }

    /// Says whether the game is over, for a thread of its own.
    pub fn over(&self) -> impl Fn() -> bool + Send + 'static {
        let shared = self.shared.clone();
        move || shared.over.load(Ordering::Acquire)
    }

    /// Where to press.
    pub fn hands(&self) -> &Arc<Hands> {
        &self.hands
    }

    /// Asks for something. What comes when too much waits is left out.
    pub fn send(&self, command: Command) {
        _ = self.commands.try_send(command);
    }

    /// This thread is unparked when there is something new.
    pub fn wake(&self, thread: Thread) {
        _ = self.shared.waker.set(thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_scene_is_seen_once() {
        let (mut stage, mut view) = stage();
        assert!(!view.look());
        for text in ["one", "two", "three"] {
            stage.show(|scene| scene.status = text.into());
        }
        assert!(view.look() && !view.look());
        assert_eq!((view.scene().status.as_str(), view.scene().number), ("three", 3));
        assert!(!view.is_over());
        drop(stage);
        assert!(view.is_over());
    }

    #[test]
    fn a_game_waits_for_its_front_end_and_not_for_one_that_is_gone() {
        for gone in [false, true] {
            let (stage, view) = stage();
            let waiting = std::thread::spawn(move || stage.wait());
            assert!(!waiting.is_finished());
            if gone {
                drop(view)
            } else {
                view.ready()
            }
            waiting.join().unwrap();
        }
    }

    #[test]
    fn commands_arrive_and_a_front_end_that_is_gone_ends_the_game() {
        let (mut stage, view) = stage();
        view.send(Command::Pause);
        assert_eq!((stage.poll_command(), stage.poll_command()), (Some(Command::Pause), None));
        (0..1_000).for_each(|_| view.send(Command::Mute));
        assert_eq!(std::iter::from_fn(|| stage.poll_command()).count(), WAITING);
        drop(view);
        assert_eq!(stage.poll_command(), Some(Command::Exit));
    }
}
