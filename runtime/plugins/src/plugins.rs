//! The plugins that are in the directories at this moment.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use bantam_backend::CustomOps;
use bantam_family_api::{
    Checkpoint, Draft, FamilyError, HfCheckpoint, Import, Model,
    wire::{BuildAnswer, BuildRequest, Description, OpAnswer, OpRequest, WireError},
};
use bantam_graph::{Graph, Op, check};

use crate::{
    PluginError,
    copies::{Copies, PrivateCopy},
    error::{misleads, told as words},
    families::BUILT_IN,
    file,
    ops::{PluginOps, Told},
    platform::Kind,
    trust::Stamp,
    verify,
    worker::{self, Limits, Question, WorkerProgram},
};

/// Where plugins are looked for, and how they are asked.
#[derive(Clone, Debug)]
pub struct PluginsConfig {
    /// Directories, the most important first. One that does not exist holds none.
    pub directories: Vec<PathBuf>,
    /// The program that asks a plugin.
    pub worker: WorkerProgram,
    /// What a question may cost.
    pub limits: Limits,
}

/// A file in one of the directories, and what it is.
#[derive(Clone, Debug)]
pub struct Found {
    /// The file.
    pub file: PathBuf,
    /// The plugin, or why it is none that can be used.
    pub plugin: Result<Arc<Plugin>, PluginError>,
}

/// A plugin that can be asked.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The file it was read from.
    pub file: PathBuf,
    /// What it says of itself.
    pub description: Description,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    copy: Arc<PrivateCopy>,
    told: Arc<Told>,
    worker: WorkerProgram,
    limits: Limits,
}

/// What was found when it was looked at last.
#[derive(Debug, Default)]
struct Seen {
    files: BTreeMap<PathBuf, Look>,
    /// Directories that could not be read, and why.
    unread: BTreeMap<PathBuf, String>,
}

/// One look at one file.
#[derive(Debug)]
struct Look {
    stamp: Stamp,
    found: Found,
    /// Whether what was found is so as long as the stamp is the same.
    is_final: bool,
}

impl Look {
    /// Whether there is nothing new to be seen.
    fn holds(&self, stamp: &Stamp) -> bool {
        self.is_final && self.is_there() && self.stamp == *stamp
    }

    /// Whether the copy that it found is still there.
    fn is_there(&self) -> bool {
        self.found.plugin.as_ref().map_or(true, |plugin| plugin.copy.is_there())
    }

    /// Whether another look at the same file has shown the same.
    fn shows(&self, stamp: &Stamp, found: &Found) -> bool {
        let is_same = match (&self.found.plugin, &found.plugin) {
            (Ok(before), Ok(now)) => before.sha256 == now.sha256,
            (Err(before), Err(now)) => before == now,
            _ => false,
        };
        self.stamp == *stamp && is_same
    }
}

/// The plugins of some directories. Looking again costs little where nothing has changed.
#[derive(Debug)]
pub struct Plugins {
    config: PluginsConfig,
    copies: Copies,
    seen: Mutex<Seen>,
    /// Whether somebody waits for a look that begins from now on.
    is_wanted: AtomicBool,
}

impl Plugins {
    /// Looks at nothing yet.
    pub fn new(config: PluginsConfig) -> Self {
        Plugins { config, copies: Copies::new(), seen: Mutex::default(), is_wanted: AtomicBool::default() }
    }

    /// Where plugins are looked for.
    pub fn directories(&self) -> &[PathBuf] {
        &self.config.directories
    }

    /// Everything in the directories that may be a plugin, in order of precedence. What is new or has changed is asked what it
    /// is, and told of in the log once.
    pub fn scan(&self) -> Vec<Found> {
        // A panic while the lock was held leaves a map that is still true.
        let found = self.scan_into(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        if self.is_wanted.load(Ordering::SeqCst) {
            self.refresh();
        }
        found
    }

    /// The same, for its entries in the log alone. If somebody else looks at this moment, they look once more instead.
    pub fn refresh(&self) {
        self.is_wanted.store(true, Ordering::SeqCst);
        while self.is_wanted.load(Ordering::SeqCst) {
            let Ok(mut seen) = self.seen.try_lock() else { return };
            self.is_wanted.store(false, Ordering::SeqCst);
            self.scan_into(&mut seen);
        }
    }

    fn scan_into(&self, seen: &mut Seen) -> Vec<Found> {
        let (candidates, unread) = self.candidates();
        for (directory, why) in unread.iter().filter(|(directory, why)| seen.unread.get(*directory) != Some(why)) {
            tracing::warn!("the directory of plugins {} is not used: {why}", shown(directory));
        }
        seen.unread = unread;
        let stamped = candidates.into_iter().filter_map(|path| Some((Stamp::of(&path)?, path)));
        let files: Vec<_> = stamped.map(|(stamp, path)| (stamp, seen.files.remove(&path), path)).collect();
        let now = at_once(files, |(stamp, before, path)| match before {
            Some(before) if before.holds(&stamp) => Some(before),
            before => self.look_again(stamp, before.as_ref(), &path),
        });
        let now: Vec<Look> = now.into_iter().flatten().collect();
        let found = now.iter().map(|look| look.found.clone()).collect();
        seen.files = now.into_iter().map(|look| (look.found.file.clone(), look)).collect();
        found
    }

    /// Looks until the file has been the same from before the look to behind it, so that what is told is told of just that file; with
    /// its stamp, and whether that will show any change. `None`: it is gone meanwhile.
    fn look_steadily(&self, mut stamp: Stamp, path: &Path) -> Option<(Stamp, bool, Found)> {
        const TRIES: usize = 4;
        for _ in 1..TRIES {
            // Before the look: a change during it shows in the times of a file that is settled.
            let is_settled = stamp.is_settled();
            let found = self.look_at(path);
            let behind = Stamp::of(path)?;
            if behind == stamp {
                return Some((stamp, is_settled, found));
            }
            stamp = behind;
        }
        Some((stamp, false, self.look_at(path)))
    }

    /// `None`: it is gone meanwhile.
    fn look_again(&self, stamp: Stamp, before: Option<&Look>, path: &Path) -> Option<Look> {
        let (stamp, is_settled, found) = self.look_steadily(stamp, path)?;
        let found = match before.filter(|before| before.shows(&stamp, &found)) {
            // What was told of the ops of this file stays told.
            Some(before) if before.is_there() => before.found.clone(),
            Some(_) => found,
            None => {
                tell(&found);
                found
            }
        };
        let is_final = is_settled && !found.plugin.as_ref().is_err_and(PluginError::may_pass);
        Some(Look { stamp, found, is_final })
    }

    /// What a file is, wherever it lies.
    ///
    /// # Errors
    /// Why it is no plugin that can be used.
    pub fn open(&self, path: &Path) -> Result<Arc<Plugin>, PluginError> {
        self.introduced(path).map_err(PluginError::shown)
    }

    fn introduced(&self, path: &Path) -> Result<Arc<Plugin>, PluginError> {
        let copy = self.copies.copy(path)?;
        let question = Question::Describe;
        let answer = ask(&self.config.worker, self.config.limits, &copy, question, Vec::new())?;
        let refused = |why| PluginError::Answer { question: question.name(), why };
        let description = Description::from_slice(&answer).map_err(|why| refused(why.to_string()))?;
        check_names(&description).map_err(refused)?;
        Ok(Arc::new(Plugin {
            file: path.into(),
            description,
            sha256: copy.sha256.clone(),
            copy,
            told: Arc::default(),
            worker: self.config.worker.clone(),
            limits: self.config.limits,
        }))
    }

    /// Everything in the directories that may be a plugin, looked at now; of files nothing is told to the log.
    pub fn look(&self) -> Vec<Found> {
        let (candidates, unread) = self.candidates();
        for (directory, why) in &unread {
            tracing::warn!("the directory of plugins {} is not used: {why}", shown(directory));
        }
        at_once(candidates, |path| self.look_at(&path))
    }

    fn look_at(&self, path: &Path) -> Found {
        Found { file: path.into(), plugin: self.open(path) }
    }

    /// Files that may be plugins, and directories that cannot be read.
    fn candidates(&self) -> (Vec<PathBuf>, BTreeMap<PathBuf, String>) {
        let (mut files, mut unread) = (Vec::new(), BTreeMap::new());
        for directory in &self.config.directories {
            match file::candidates(directory) {
                Ok(found) => files.extend(found),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => drop(unread.insert(directory.clone(), e.to_string())),
            }
        }
        (files, unread)
    }
}

/// Why a plugin did not describe what it was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It refuses that, which is its right: nobody else is to be asked.
    Refusal(FamilyError),
    /// It is broken: it gives no answer, or none that can be.
    Failure(FamilyError),
}

impl Plugin {
    /// Whether it takes an architecture.
    pub fn takes(&self, architecture: &str) -> bool {
        self.description.architectures.iter().any(|taken| taken == architecture)
    }

    /// Describes a checkpoint.
    ///
    /// # Errors
    /// What the plugin refuses, or what is wrong with its answer.
    pub fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, Fault> {
        let model = match self.build(&BuildRequest::Model { checkpoint: checkpoint.clone() })? {
            BuildAnswer::Model(model) => model,
            BuildAnswer::Error(error) => return Err(self.says(error)),
            _ => return Err(self.refused("expected `model`".into())),
        };
        verify::model(&model, checkpoint).map_err(|why| self.refused(why))?;
        self.check_ops(&model.text)?;
        model.draft.as_ref().map_or(Ok(()), |draft| self.check_ops(&draft.graph))?;
        if !model.chat.unknown_calls.is_empty() {
            let first = model.chat.unknown_calls.iter().take(SHOWN_KINDS);
            let kinds = first.map(|kind| format!("{:?}", kind.chars().take(40).collect::<String>()));
            let kinds = kinds.collect::<Vec<_>>().join(", ");
            tracing::warn!(
                "plugin {}: calls of tools in the form {kinds} are not known here and stay text",
                self.name()
            );
        }
        Ok(*model)
    }

    /// Brings a Hugging Face checkpoint into the family's terms.
    ///
    /// # Errors
    /// As [`Plugin::describe`].
    pub fn import(&self, checkpoint: &HfCheckpoint) -> Result<Import, Fault> {
        let import = match self.build(&BuildRequest::Import { checkpoint: checkpoint.clone() })? {
            BuildAnswer::Import(import) => import,
            BuildAnswer::Error(error) => return Err(self.says(error)),
            _ => return Err(self.refused("expected `import`".into())),
        };
        verify::import(&import, checkpoint).map_err(|why| self.refused(why))?;
        Ok(*import)
    }

    /// Describes a draft from a file of its own.
    ///
    /// # Errors
    /// As [`Plugin::describe`].
    pub fn describe_draft(&self, draft: &Checkpoint, target: &Checkpoint) -> Result<Draft, Fault> {
        let built = match self.build(&BuildRequest::Draft { draft: draft.clone(), target: target.clone() })? {
            BuildAnswer::Draft(draft) => draft,
            BuildAnswer::Error(error) => return Err(self.says(error)),
            _ => return Err(self.refused("expected `draft`".into())),
        };
        verify::draft(&built, draft, target).map_err(|why| self.refused(why))?;
        Ok(*built)
    }

    /// What computes the ops that it brings: its library, loaded into this process.
    ///
    /// # Errors
    /// A plugin in WebAssembly, whose ops are not run; a library that cannot be loaded or has no ops.
    pub(crate) fn ops(&self) -> Result<Arc<dyn CustomOps>, FamilyError> {
        if self.copy.kind == Kind::Wasm {
            let why = "ops of plugins in WebAssembly are not run; take the plugin as a library";
            return Err(self.told(&PluginError::Load(why.into())));
        }
        let ops = PluginOps::load(&self.copy, &self.description.name, shown(&self.file), Arc::clone(&self.told));
        ops.map(|ops| Arc::new(ops) as Arc<dyn CustomOps>).map_err(|e| self.told(&e))
    }

    /// Asks how wide the results of the graph's ops are that the plugin brings, and compares.
    fn check_ops(&self, graph: &Graph) -> Result<(), Fault> {
        let checked = check(graph).map_err(|e| self.refused(e.to_string()))?;
        let mut asked: HashMap<Vec<u8>, usize> = HashMap::new();
        // All of them together have the time of one question: a graph may have very many.
        let deadline = Instant::now() + self.limits.time;
        for node in &graph.nodes {
            let Op::Custom(op) = &node.op else { continue };
            let widths: Vec<usize> = op.x.iter().filter_map(|x| checked.types.get(x)).map(|t| t.width).collect();
            let weights = op.weights.iter().filter_map(|name| checked.weight(name));
            let shapes: Vec<&[usize]> = weights.map(|weight| weight.shape.as_slice()).collect();
            let request = OpRequest::new(op, &widths, &shapes).to_vec();
            let request = request.map_err(|e| self.refused(e.to_string()))?;
            let refused = |why: String| {
                let node = &node.name;
                self.failed(&PluginError::Answer {
                    question: Question::Infer.name(),
                    why: format!("node `{node}`: {why}"),
                })
            };
            let width = match asked.get(&request) {
                Some(width) => *width,
                None => self.infer(request.clone(), deadline)?.map_err(refused)?,
            };
            if width != op.width {
                return Err(refused(format!("op `{}` yields rows of {width}, and the graph says {}", op.op, op.width)));
            }
            asked.insert(request, width);
        }
        Ok(())
    }

    fn infer(&self, request: Vec<u8>, deadline: Instant) -> Result<Result<usize, String>, Fault> {
        let limits = Limits { time: deadline.saturating_duration_since(Instant::now()), ..self.limits };
        let answer = ask(&self.worker, limits, &self.copy, Question::Infer, request);
        let answer = answer.map_err(|e| match e {
            PluginError::Time { question, .. } => self.failed(&PluginError::Time { question, limit: self.limits.time }),
            other => self.failed(&other),
        })?;
        Ok(match OpAnswer::from_slice(&answer) {
            Ok(OpAnswer::Op(op)) => Ok(op.width),
            Ok(OpAnswer::Error(error)) => Err(FamilyError::from(error).to_string()),
            Err(why) => Err(why.to_string()),
        })
    }

    fn build(&self, request: &BuildRequest) -> Result<BuildAnswer, Fault> {
        let request = request.to_vec().map_err(|e| Fault::Refusal(FamilyError::Unsupported(e.to_string())))?;
        let answer = ask(&self.worker, self.limits, &self.copy, Question::Build, request);
        let answer = answer.map_err(|e| self.failed(&e))?;
        BuildAnswer::from_slice(&answer).map_err(|why| self.refused(why.to_string()))
    }

    /// Its name and file, for messages.
    pub fn name(&self) -> String {
        format!("`{}` ({})", self.description.name, shown(&self.file))
    }

    /// A refusal by the plugin, which does not say whose it is where it is a sentence.
    fn says(&self, error: WireError) -> Fault {
        Fault::Refusal(match error {
            WireError::Message { message } if message.trim().is_empty() => {
                FamilyError::Unsupported(format!("the plugin {} refuses it without a reason", self.name()))
            }
            WireError::Message { message } => {
                FamilyError::Unsupported(format!("the plugin {}: {}", self.name(), words(&message)))
            }
            WireError::Key { key, expected, found } => {
                FamilyError::Key { key: words(&key), expected: words(&expected), found: words(&found) }
            }
            WireError::Tensor { tensor, expected, found } => {
                FamilyError::Tensor { tensor: words(&tensor), expected: words(&expected), found: words(&found) }
            }
        })
    }

    fn refused(&self, why: String) -> Fault {
        self.failed(&PluginError::Answer { question: Question::Build.name(), why })
    }

    fn failed(&self, why: &PluginError) -> Fault {
        Fault::Failure(self.told(why))
    }

    fn told(&self, why: &PluginError) -> FamilyError {
        FamilyError::Unsupported(format!("the plugin {} failed: {}", self.name(), why.clone().shown()))
    }
}

/// Asks a plugin by its private copy. What a copy that was taken away does not answer says nothing of the plugin.
fn ask(
    worker: &WorkerProgram,
    limits: Limits,
    copy: &PrivateCopy,
    question: Question,
    request: Vec<u8>,
) -> Result<Vec<u8>, PluginError> {
    let answer = worker::ask(worker, limits, &copy.path, question, request);
    match answer.is_err() && !copy.is_there() {
        true => Err(PluginError::Place(format!("{} was taken away", copy.path.display()))),
        false => answer,
    }
}

/// Does something for each of these at the same time, as far as it has to wait: one plugin that hangs holds up no other.
fn at_once<T: Send, U: Send>(of: Vec<T>, make: impl Fn(T) -> U + Sync) -> Vec<U> {
    const AT_ONCE: usize = 8;
    let mut made = Vec::with_capacity(of.len());
    let mut rest = of.into_iter();
    loop {
        let some: Vec<T> = rest.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return made;
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = some.into_iter().map(|one| scope.spawn(|| make(one))).collect();
            made.extend(threads.into_iter().filter_map(|thread| thread.join().ok()));
        });
    }
}

/// Tells the log what was found.
fn tell(found: &Found) {
    let file = shown(&found.file);
    match &found.plugin {
        Ok(plugin) => {
            let Description { name, version, architectures, .. } = &plugin.description;
            tracing::info!("plugin {file}: {name} {version}, for {}", architectures.join(", "));
        }
        Err(why) => tracing::warn!("the plugin {file} is not used: {why}"),
    }
}

/// Kinds of calls that a line of the log names.
const SHOWN_KINDS: usize = 8;

/// Most architectures of one plugin, and longest name.
const MOST_ARCHITECTURES: usize = 256;
const LONGEST_NAME: usize = 100;

/// Names are shown in logs and lists.
fn check_names(description: &Description) -> Result<(), String> {
    let Description { name, version, architectures, hf_architectures, draft_architectures, .. } = description;
    let all = || architectures.iter().chain(hf_architectures).chain(draft_architectures);
    if all().count() > MOST_ARCHITECTURES {
        return Err(format!("expected at most {MOST_ARCHITECTURES} architectures, found {}", all().count()));
    }
    if architectures.is_empty() && hf_architectures.is_empty() {
        return Err("architectures: it takes none".into());
    }
    let is_bad = |name: &&String| name.trim().is_empty() || name.len() > LONGEST_NAME || name.chars().any(misleads);
    match [name, version].into_iter().chain(all()).find(is_bad) {
        Some(bad) => {
            let shown: String = bad.chars().take(LONGEST_NAME).flat_map(char::escape_default).collect();
            Err(format!("expected names of 1 to {LONGEST_NAME} printable characters, found \"{shown}\""))
        }
        None if name == BUILT_IN => Err(format!("name: `{BUILT_IN}` stands for the families of this program")),
        None => Ok(()),
    }
}

/// A path as it may stand in a line of text.
fn shown(path: &Path) -> String {
    words(&path.display().to_string())
}
