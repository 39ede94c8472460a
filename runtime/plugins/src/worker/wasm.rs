//! A plugin in WebAssembly, interpreted: the functions of `plugins/bantam_plugin.h` over its own linear memory.
//!
//! It imports nothing, so it can neither see nor change anything but the request and its answer, and is the same on every
//! machine. Its steps are counted and its memory is bounded.

use std::path::Path;

use bantam_family_api::wire::ABI;
use wasmi::{Config, Engine, Instance, Linker, Memory, Module, Store, StoreLimits, StoreLimitsBuilder, TypedFunc};
use wasmi::{WasmParams, WasmResults};

use super::{LONGEST_ANSWER, Question, Refusal, symbols};

/// Steps of the interpreter for one question: some seconds.
const FUEL: u64 = 2_000_000_000;
/// Steps before the first question, in which a module has little to do.
const START_FUEL: u64 = FUEL / 16;
/// Most memory of a plugin, in bytes.
const MEMORY: usize = 512 << 20;
/// Bytes of a `bantam_bytes`: an address and a length of 32 bits.
const BYTES_LEN: u32 = 8;

/// Asks the plugin in a module.
pub(super) fn ask(file: &Path, question: Question, request: &[u8]) -> Result<Vec<u8>, Refusal> {
    let bytes = std::fs::read(file).map_err(|e| Refusal::Load(e.to_string()))?;
    let mut plugin = Plugin::load(&bytes)?;
    let found = plugin.call::<(), u32>(symbols::ABI, ())?;
    if found != ABI {
        return Err(Refusal::Abi(found));
    }
    for symbol in [symbols::DESCRIBE, symbols::BUILD, symbols::FREE, symbols::ALLOC] {
        plugin.instance.get_func(&plugin.store, symbol).ok_or_else(|| Refusal::Symbol(symbol.into()))?;
    }
    let answer = plugin.write(&[0; BYTES_LEN as usize])?;
    let code: i32 = match question {
        Question::Describe => plugin.call(symbols::DESCRIBE, answer)?,
        Question::Infer => return Err(Refusal::Load("ops of plugins in WebAssembly are not run".into())),
        Question::Build => {
            let length = u32::try_from(request.len()).map_err(|e| Refusal::Load(e.to_string()))?;
            let request = plugin.write(request)?;
            plugin.call(symbols::BUILD, (request, length, answer))?
        }
    };
    match code {
        0 => plugin.read(answer),
        code => Err(Refusal::Code(code)),
    }
}

struct Plugin {
    store: Store<StoreLimits>,
    instance: Instance,
    memory: Memory,
}

impl Plugin {
    fn load(bytes: &[u8]) -> Result<Self, Refusal> {
        let load = |e: wasmi::Error| Refusal::Load(e.to_string());
        let mut config = Config::default();
        config.consume_fuel(true);
        let engine = Engine::new(&config);
        let module = Module::new(&engine, bytes).map_err(load)?;
        if let Some(import) = module.imports().next() {
            let (module, name) = (import.module(), import.name());
            return Err(Refusal::Load(format!("it imports `{module}.{name}`, and a plugin must import nothing")));
        }
        let limits = StoreLimitsBuilder::new().memory_size(MEMORY).memories(1).instances(1).tables(8).build();
        let mut store = Store::new(&engine, limits);
        store.limiter(|limits| limits);
        store.set_fuel(START_FUEL).map_err(load)?;
        let instance = Linker::new(&engine).instantiate_and_start(&mut store, &module).map_err(load)?;
        store.set_fuel(FUEL).map_err(load)?;
        let memory = instance.get_memory(&store, "memory").ok_or_else(|| Refusal::Symbol("memory".into()))?;
        Ok(Plugin { store, instance, memory })
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, with: P) -> Result<R, Refusal> {
        let function = self.instance.get_func(&self.store, name).ok_or_else(|| Refusal::Symbol(name.into()))?;
        let typed: Result<TypedFunc<P, R>, _> = function.typed(&self.store);
        let typed = typed.map_err(|e| Refusal::Load(format!("`{name}`: {e}; see bantam_plugin.h")))?;
        typed.call(&mut self.store, with).map_err(|e| Refusal::Answer(format!("`{name}` was stopped: {e}")))
    }

    /// Puts bytes into the plugin's memory, where it gives room for them.
    fn write(&mut self, bytes: &[u8]) -> Result<u32, Refusal> {
        let length = u32::try_from(bytes.len()).map_err(|e| Refusal::Answer(e.to_string()))?;
        let at: u32 = self.call(symbols::ALLOC, length)?;
        if at == 0 {
            return Err(Refusal::Answer(format!("it has no memory for a request of {length} bytes")));
        }
        let written = self.memory.write(&mut self.store, at as usize, bytes);
        written.map_err(|e| Refusal::Answer(format!("`{}` gave room outside of its memory: {e}", symbols::ALLOC)))?;
        Ok(at)
    }

    /// The bytes that a `bantam_bytes` stands for.
    fn read(&self, at: u32) -> Result<Vec<u8>, Refusal> {
        let memory = self.memory.data(&self.store);
        let range = |from: u32, length: u32| memory.get(from as usize..(from as usize).checked_add(length as usize)?);
        let word = |from: u32| Some(u32::from_le_bytes(range(from, 4)?.try_into().ok()?));
        let answer = || {
            let (data, length) = (word(at)?, word(at.checked_add(4)?)?);
            range(data, length)
        };
        match answer() {
            None => Err(Refusal::Answer("it lies outside of its memory".into())),
            Some([]) => Err(Refusal::Answer("it is empty".into())),
            Some(answer) if answer.len() > LONGEST_ANSWER => Err(Refusal::Answer("it is too long".into())),
            Some(answer) => Ok(answer.to_vec()),
        }
    }
}
