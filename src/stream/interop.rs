//! Host applications: linn on a wgpu device that somebody else opened, and commands and buffers that go both ways.
//!
//! The only place where wgpu's types are part of the public API; [`linn::wgpu`](crate::wgpu) is the version they are from.
//!
//! | the application wants to | call |
//! |---|---|
//! | run linn on its own device and queue | [`Device::from_wgpu`] |
//! | record commands of its own between linn's | `Stream::with_encoder` |
//! | use a tensor in submissions of its own | `Tensor::export`, given back by `Export::submitted` |
//! | make a tensor of a buffer of its own | `Tensor::from_buffer` |
//! | read vertices, indices, indirect arguments or uniforms from tensors | [`DeviceOptions::buffer_uses`] |
//!
//! There is one queue, so what the application submits runs before or after a submission of linn, as a whole.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use futures_channel::oneshot;
use smallvec::SmallVec;
pub(crate) use wgpu::{Buffer, CommandEncoder};

pub use crate::device::command::Window;
use crate::device::command::{Command, Foreign, Op, Record};
use crate::device::{Device, DeviceOptions, Gpu, Memory};
use crate::error::{Error, Result};
use crate::ids::StreamId;
use crate::kernel::pipeline::STORAGE;
use crate::memory::Tag;
use crate::stream::{Stream, enqueue, queue};
use crate::timeline::{Access, AccessList};

impl Device {
    /// linn on the device and queue of an application. The application goes on to use both, from any thread: linn submits from
    /// a thread of its own. When linn's last handle is dropped, what was enqueued is submitted and linn's buffers go; the
    /// device stays.
    ///
    /// Of `options`, the backend and the adapter mean nothing here. WebGPU's default limits suffice; with
    /// `Features::IMMEDIATES` and `Features::SUBGROUP` kernels are faster where the adapter has them.
    ///
    /// - Error handlers and the device-lost callback stay the application's. A device that is lost is noticed with the next
    ///   submission; [`Device::mark_lost`] says it at once.
    /// - wgpu runs callbacks, the application's too, on whichever thread submits or polls, linn's among them.
    ///   [`DeviceOptions::polling`] says when linn polls.
    /// - On GL, no call of the application may last while another thread is in a submission of more than some seconds
    ///   (wgpu panics then). linn's last a tenth of a second or so.
    ///
    /// # Errors
    /// [`Error::Limit`] names every limit that is too small for linn's kernels.
    pub fn from_wgpu(device: &wgpu::Device, queue: &wgpu::Queue, options: DeviceOptions) -> Result<Device> {
        let shared = Device::adopted_parts(device, queue, options)?;
        let closer = queue::start(&shared).map_err(|fact| Error::DeviceLost { fact })?;
        Ok(Device::from_parts(shared, closer))
    }

    /// The application has been told that its device is lost, and passes it on: every wait ends with an error that says `why`,
    /// and later calls fail at once. Devices that linn has opened notice by themselves.
    pub fn mark_lost(&self, why: &str) {
        self.shared().lost(why.to_owned());
    }
}

/// The bytes of a tensor in its memory.
pub(crate) struct Part<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// Enqueues commands of an application on `stream`; `record` gets the windows of what it reads and then of what it writes.
#[track_caller]
pub(crate) fn with_encoder(stream: &Stream, reads: &[Part<'_>], writes: &[Part<'_>], record: Record) -> Result<()> {
    const OP: &str = "with_encoder";
    let device = stream.device();
    let mut accesses = AccessList::default();
    for (parts, access) in [(reads, Access::Read), (writes, Access::Write)] {
        for part in parts {
            if !part.memory.device().same(device) {
                return Err(device.mismatch(OP, part.memory.device()));
            }
            accesses.push(part.memory.block(), access);
        }
    }
    let parts = || reads.iter().chain(writes);
    let foreign = Foreign {
        places: parts().map(|part| part.memory.place()).collect(),
        windows: parts().map(|part| (part.offset, part.size)).collect(),
        reads: reads.len(),
        record,
    };
    let command = Command { label: OP, location: Location::caller(), op: Op::Foreign(Box::new(foreign)) };
    let _current = stream.enter();
    let core = device.shared().lock();
    // A closure that is refused is dropped here, without the lock: what it holds may need it.
    let refused = core.alive().and_then(|()| core.usable(OP, &accesses));
    if let Err(error) = refused {
        drop(core);
        return Err(error);
    }
    writes.iter().for_each(|part| part.memory.written());
    enqueue(device, core, &accesses, command, &[])
}

/// Commands of an application with their places resolved.
pub(super) struct ForeignCommands {
    /// (segment, offset, size) of what is read, then of what is written.
    windows: SmallVec<[super::copies::Bytes; 6]>,
    reads: usize,
    location: &'static Location<'static>,
    record: Cell<Option<Record>>,
}

impl ForeignCommands {
    pub(super) fn new(
        windows: SmallVec<[super::copies::Bytes; 6]>,
        reads: usize,
        location: &'static Location<'static>,
        record: Record,
    ) -> ForeignCommands {
        ForeignCommands { windows, reads, location, record: Cell::new(Some(record)) }
    }

    /// The line that asked for them.
    pub(super) fn location(&self) -> &'static Location<'static> {
        self.location
    }

    pub(super) fn written(&self) -> &[super::copies::Bytes] {
        self.windows.get(self.reads..).unwrap_or_default()
    }

    /// True when the closure has run.
    pub(super) fn is_recorded(&self) -> bool {
        let record = self.record.take();
        let gone = record.is_none();
        self.record.set(record);
        gone
    }

    /// Runs the closure. `Err` holds the driver's words for what it refused, or the closure's last words.
    pub(super) fn record(
        &self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        segments: &[Option<wgpu::Buffer>],
    ) -> Result<(), String> {
        let mut windows = SmallVec::<[Window; 6]>::new();
        for (segment, offset, size) in &self.windows {
            let buffer = segments.get(segment.0 as usize).and_then(Option::as_ref).ok_or("a buffer is gone")?;
            windows.push(Window { buffer: buffer.clone(), offset: *offset, size: *size });
        }
        gpu.attempt("linn.with_encoder", || {
            let record = self.record.take().ok_or("its commands cannot be recorded twice")?;
            catch_unwind(AssertUnwindSafe(|| record(encoder, &windows)))
                .map_err(|panic| format!("the closure panicked: {}", last_words(panic)))
        })?
    }
}

/// What a panic said.
pub(crate) fn last_words(panic: Box<dyn Any + Send>) -> String {
    let panic = match panic.downcast::<String>() {
        Ok(words) => return *words,
        Err(panic) => panic,
    };
    match panic.downcast::<&str>() {
        Ok(words) => (*words).to_owned(),
        Err(other) => {
            // What it holds is kept: to drop it could panic again.
            std::mem::forget(other);
            "without a word".to_owned()
        }
    }
}

/// Lends memory to the application, for reading or for writing too: it does not move, and linn refuses what would clash. The
/// answer comes when everything enqueued that uses it has been handed to the driver.
pub(crate) fn lend(memory: &Memory, access: Access) -> Result<oneshot::Receiver<()>> {
    let (sender, receiver) = oneshot::channel();
    let mut accesses = AccessList::default();
    accesses.push(memory.block(), access);
    let shared = memory.device().shared();
    let mut core = shared.lock();
    core.alive()?;
    core.usable("export", &accesses)?;
    core.pool.pin(memory.block());
    core.exports.push((memory.block(), access));
    if access == Access::Write {
        memory.written();
    }
    // Moves enqueued before this count among the uses: the place is final when they are submitted.
    let uses = core.timeline.last_uses(memory.block());
    core.want(&uses);
    core.submit_waiters.push((uses, sender));
    shared.wake(core);
    Ok(receiver)
}

/// Where lent memory lies, when everything has been submitted.
pub(crate) fn window(part: &Part<'_>) -> Result<Window> {
    let core = part.memory.device().shared().lock();
    core.alive()?;
    let place = core.places.resolve(part.memory.place());
    let found = place.and_then(|place| Some((place, core.segments.get(place.segment.0 as usize)?.as_ref()?)));
    let (place, buffer) = found.ok_or_else(|| Error::DeviceLost { fact: "the device is closed".into() })?;
    Ok(Window { buffer: buffer.clone(), offset: place.offset + part.offset, size: part.size })
}

/// The application has submitted what uses the memory: linn's later work comes after it.
pub(crate) fn give_back(memory: &Memory, access: Access) {
    let core = &mut *memory.device().shared().lock();
    if let Some(at) = core.exports.iter().position(|export| *export == (memory.block(), access)) {
        core.exports.swap_remove(at);
    }
    core.pool.unpin(memory.block());
    if let (Access::Write, Some(place)) = (access, core.places.resolve(memory.place())) {
        core.rewritten.push((place.segment, place.offset, place.size));
    }
}

/// Memory in an application's buffer, from `offset` on; `tag` says what for and who asks.
pub(crate) fn import(device: &Device, buffer: &wgpu::Buffer, offset: u64, size: u64, tag: Tag) -> Result<Memory> {
    use wgpu::BufferUsages as Usage;
    let op = tag.label;
    let missing = (Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST) - buffer.usage();
    if !missing.is_empty() {
        let help = "create it with BufferUsages::STORAGE | COPY_SRC | COPY_DST and what the application needs beside";
        return Err(Error::argument(op, format!("the buffer lacks the usages {missing:?}"), help));
    }
    // Kernels that read four elements at a time see whole vectors of 16 bytes.
    let block_size = size.next_multiple_of(16);
    if offset.checked_add(block_size).is_none_or(|end| end > buffer.size()) {
        return Err(Error::argument(
            op,
            format!("{block_size} bytes from {offset} on do not lie in a buffer of {} bytes", buffer.size()),
            "make the buffer larger: from the offset on it holds the elements, rounded up to 16 bytes",
        ));
    }
    let alignment = u64::from(device.limits().storage_alignment).max(16);
    if !offset.is_multiple_of(alignment) {
        let help = "begin at such a multiple (min_storage_buffer_offset_alignment; 256 is one everywhere)";
        return Err(Error::argument(op, format!("the offset {offset} is no multiple of {alignment}"), help));
    }
    let limit = device.limits().max_storage_buffer_binding_size;
    if block_size > limit {
        let fact = format!("{block_size} bytes are more than a kernel can see (max_storage_buffer_binding_size is {limit})");
        return Err(Error::Limit { op, fact, help: "import parts of the buffer as tensors of their own".into() });
    }
    // A buffer of another wgpu device is found out here, not when somebody else's work is encoded beside it.
    let gpu = &device.shared().gpu;
    let bind = || {
        let entry = wgpu::BindGroupLayoutEntry { binding: 0, visibility: wgpu::ShaderStages::COMPUTE, ty: STORAGE, count: None };
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: Some(op), entries: &[entry] };
        let layout = gpu.device.create_bind_group_layout(&descriptor);
        let window = Window { buffer: buffer.clone(), offset, size: block_size };
        let entries = [wgpu::BindGroupEntry { binding: 0, resource: window.binding() }];
        let _ = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor { label: Some(op), layout: &layout, entries: &entries });
    };
    gpu.attempt("linn.import", bind).map_err(|fact| {
        Error::argument(op, format!("the buffer cannot be bound: {fact}"), "pass a buffer of the device that linn runs on")
    })?;
    let (memory, again) = device.import(buffer, offset, size, block_size, tag)?;
    if again {
        // An empty command that writes the bytes, after everything: whatever uses the new name comes after it.
        let stream = device.current_stream();
        {
            let timeline = &mut device.shared().lock().timeline;
            let everything = timeline.everything();
            timeline.wait(StreamId(stream.id()), &everything);
        }
        with_encoder(&stream, &[], &[Part { memory: &memory, offset: 0, size }], Box::new(|_, _| {}))?;
    }
    Ok(memory)
}
