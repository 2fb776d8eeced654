//! Reads the description of tensors in a file of `torch.save`. A pickle is a program. Only the
//! instructions that describe a tensor, or a dictionary of tensors, are known here. They build
//! nothing but numbers and texts, so a pickle cannot run any code.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

/// Longest pickle that is read, bytes. That of one tensor has about 200.
const PICKLE_BYTES_MAX: usize = 8 << 10;
/// Deepest nesting of tuples.
const DEPTH_MAX: u8 = 8;
/// The function that makes a tensor.
const TENSOR: &str = "torch._utils _rebuild_tensor_v2";
/// The function that makes a parameter of a tensor.
const PARAMETER: &str = "torch._utils _rebuild_parameter";
/// The class of the hooks of a tensor, of which it has none, and of a module's tensors.
const DICT: &str = "collections OrderedDict";

/// The type of the elements of a stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredDtype {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U8,
}

impl StoredDtype {
    /// Returns the type of a class of storages.
    fn of_class(class: &str) -> Option<Self> {
        Some(match class {
            "torch DoubleStorage" => Self::F64,
            "torch FloatStorage" => Self::F32,
            "torch HalfStorage" => Self::F16,
            "torch BFloat16Storage" => Self::Bf16,
            "torch LongStorage" => Self::I64,
            "torch IntStorage" => Self::I32,
            "torch ShortStorage" => Self::I16,
            "torch CharStorage" => Self::I8,
            "torch ByteStorage" => Self::U8,
            _ => return None,
        })
    }

    /// Returns the bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }
}

/// A tensor within a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredTensor {
    pub(crate) dtype: StoredDtype,
    /// The name of the file with the elements.
    pub(crate) key: String,
    /// The first element.
    pub(crate) offset: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

impl StoredTensor {
    /// Returns the bytes of its elements, unless they are too many to be counted.
    pub(super) fn bytes(&self) -> Option<usize> {
        self.shape.iter().try_fold(self.dtype.size(), |bytes, size| bytes.checked_mul(*size))
    }
}

/// A value that a pickle builds.
#[derive(Debug, Clone)]
enum Value {
    Mark,
    /// None, a switch, and anything else whose content does not matter.
    Other,
    Int(i64),
    Text(Rc<str>),
    /// The name of a function or a class. It is compared, never called.
    Name(Rc<str>),
    Tuple(Tuple),
    Storage(StoredDtype, Rc<str>),
    Tensor(Rc<StoredTensor>),
    /// Tensors by their names. Other values of a dictionary do not matter.
    Dict(Rc<RefCell<Tensors>>),
}

type Tensors = BTreeMap<Rc<str>, Rc<StoredTensor>>;

#[derive(Debug, Clone)]
struct Tuple {
    items: Rc<[Value]>,
    depth: u8,
}

/// Returns the tensor that `pickle` describes.
///
/// # Errors
/// The reason why it does not describe one tensor and nothing else.
pub(crate) fn tensor(pickle: &[u8]) -> Result<StoredTensor, String> {
    match described(pickle)? {
        Value::Tensor(tensor) => Ok(StoredTensor::clone(&tensor)),
        _ => Err("it holds something else than one tensor".to_owned()),
    }
}

/// Returns the tensors of the dictionary that `pickle` describes, by their names.
///
/// # Errors
/// The reason why it does not describe a dictionary.
pub(crate) fn tensors(pickle: &[u8]) -> Result<BTreeMap<String, StoredTensor>, String> {
    let Value::Dict(dict) = described(pickle)? else {
        return Err("it holds something else than a dictionary of tensors".to_owned());
    };
    let dict = dict.borrow();
    let tensors = dict.iter().map(|(name, tensor)| (name.to_string(), (**tensor).clone()));
    Ok(tensors.collect())
}

/// Returns the value that `pickle` builds.
fn described(pickle: &[u8]) -> Result<Value, String> {
    if pickle.len() > PICKLE_BYTES_MAX {
        let len = pickle.len();
        return Err(format!("its pickle has {len} bytes, and at most {PICKLE_BYTES_MAX} are read"));
    }
    let mut machine = Machine { rest: pickle, stack: Vec::new(), memo: BTreeMap::new() };
    while machine.step()? {}
    match (machine.stack.pop(), machine.stack.is_empty()) {
        (Some(value), true) => Ok(value),
        _ => Err("it holds something else than one value".to_owned()),
    }
}

struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Value>,
    memo: BTreeMap<u32, Value>,
}

impl Machine<'_> {
    /// Does the next instruction. Returns whether another follows.
    fn step(&mut self) -> Result<bool, String> {
        let [code] = self.array()?;
        match code {
            // PROTO
            0x80 => match self.array()? {
                [2..=5] => {}
                [version] => return Err(format!("its pickle has version {version}")),
            },
            // FRAME
            0x95 => {
                self.array::<8>()?;
            }
            b'(' => self.stack.push(Value::Mark),
            b'N' | 0x88 | 0x89 => self.stack.push(Value::Other),
            b'K' => {
                let [byte] = self.array()?;
                self.stack.push(Value::Int(byte.into()));
            }
            b'M' => {
                let bytes = self.array()?;
                self.stack.push(Value::Int(u16::from_le_bytes(bytes).into()));
            }
            b'J' => {
                let bytes = self.array()?;
                self.stack.push(Value::Int(i32::from_le_bytes(bytes).into()));
            }
            0x8a => self.long()?,
            b'X' => {
                let len = u32::from_le_bytes(self.array()?);
                let text = self.text(len as usize)?;
                self.stack.push(Value::Text(text));
            }
            // SHORT_BINUNICODE
            0x8c => {
                let [len] = self.array()?;
                let text = self.text(len.into())?;
                self.stack.push(Value::Text(text));
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.stack.push(Value::Name(format!("{module} {name}").into()));
            }
            // STACK_GLOBAL
            0x93 => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => {
                    self.stack.push(Value::Name(format!("{module} {name}").into()));
                }
                _ => return Err(unknown("the name of a class")),
            },
            b'}' => self.stack.push(Value::Dict(Rc::default())),
            // SETITEM
            b's' => {
                let items = self.stack.split_off(self.stack.len().saturating_sub(2));
                self.set_items(&items)?;
            }
            // SETITEMS
            b'u' => {
                let items = self.marked()?;
                self.set_items(&items)?;
            }
            // BUILD: the attributes of a dictionary.
            b'b' => {
                self.pop()?;
                self.dict()?;
            }
            b')' => self.tuple(0)?,
            0x85..=0x87 => self.tuple(usize::from(code - 0x84))?,
            b't' => {
                let items = self.marked()?;
                self.push_tuple(items)?;
            }
            b'q' => {
                let [place] = self.array()?;
                self.remember(place.into())?;
            }
            b'r' => {
                let place = u32::from_le_bytes(self.array()?);
                self.remember(place)?;
            }
            // MEMOIZE
            0x94 => self.remember(u32::try_from(self.memo.len()).unwrap_or(u32::MAX))?,
            b'h' => {
                let [place] = self.array()?;
                self.recall(place.into())?;
            }
            b'j' => {
                let place = u32::from_le_bytes(self.array()?);
                self.recall(place)?;
            }
            b'Q' => self.storage()?,
            b'R' => self.reduce()?,
            b'.' => return Ok(false),
            other => return Err(format!("its pickle has the instruction {other:#04x}")),
        }
        Ok(true)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, rest) = self.rest.split_first_chunk().ok_or("its pickle is cut off")?;
        self.rest = rest;
        Ok(*head)
    }

    fn text(&mut self, len: usize) -> Result<Rc<str>, String> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or("its pickle is cut off")?;
        self.rest = rest;
        std::str::from_utf8(head).map(Rc::from).map_err(|_| unknown("a text"))
    }

    fn line(&mut self) -> Result<Rc<str>, String> {
        let len = self.rest.iter().position(|byte| *byte == b'\n');
        let line = self.text(len.ok_or("its pickle is cut off")?)?;
        self.array::<1>()?;
        Ok(line)
    }

    /// Reads a number of up to eight bytes.
    fn long(&mut self) -> Result<(), String> {
        let [len] = self.array()?;
        let (head, rest) = self.rest.split_at_checked(len.into()).ok_or("its pickle is cut off")?;
        let sign = head.last().is_some_and(|last| last & 0x80 != 0);
        let mut bytes = [if sign { 0xff } else { 0 }; 8];
        bytes.get_mut(..head.len()).ok_or_else(|| unknown("a number"))?.copy_from_slice(head);
        self.rest = rest;
        self.stack.push(Value::Int(i64::from_le_bytes(bytes)));
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, String> {
        self.stack.pop().ok_or_else(|| unknown("an instruction without values"))
    }

    /// Takes the values behind the last mark.
    fn marked(&mut self) -> Result<Vec<Value>, String> {
        let mark = self.stack.iter().rposition(|value| matches!(value, Value::Mark));
        let mark = mark.ok_or_else(|| unknown("a list without its begin"))?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(items)
    }

    /// Returns the dictionary that the next values belong to.
    fn dict(&self) -> Result<&RefCell<Tensors>, String> {
        match self.stack.last() {
            Some(Value::Dict(dict)) => Ok(dict),
            _ => Err(unknown("values of no dictionary")),
        }
    }

    /// Adds the tensors among pairs of a name and a value.
    fn set_items(&self, items: &[Value]) -> Result<(), String> {
        let dict = self.dict()?;
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(unknown("a name without a value"));
        }
        for pair in pairs {
            if let [Value::Text(name), Value::Tensor(tensor)] = pair {
                dict.borrow_mut().insert(Rc::clone(name), Rc::clone(tensor));
            }
        }
        Ok(())
    }

    fn tuple(&mut self, len: usize) -> Result<(), String> {
        let from = self.stack.len().checked_sub(len).ok_or_else(|| unknown("a tuple"))?;
        let items = self.stack.split_off(from);
        self.push_tuple(items)
    }

    fn push_tuple(&mut self, items: Vec<Value>) -> Result<(), String> {
        let inner = items.iter().map(|item| match item {
            Value::Tuple(tuple) => tuple.depth,
            _ => 0,
        });
        let depth = 1 + inner.max().unwrap_or(0);
        if depth > DEPTH_MAX {
            return Err(unknown("tuples within tuples"));
        }
        self.stack.push(Value::Tuple(Tuple { items: items.into(), depth }));
        Ok(())
    }

    fn remember(&mut self, place: u32) -> Result<(), String> {
        let value = self.stack.last().cloned().ok_or_else(|| unknown("nothing to remember"))?;
        self.memo.insert(place, value);
        Ok(())
    }

    fn recall(&mut self, place: u32) -> Result<(), String> {
        let value = self.memo.get(&place).cloned();
        self.stack.push(value.ok_or_else(|| unknown("a value that it does not have"))?);
        Ok(())
    }

    /// Reads the name of a storage: `('storage', class, key, device, number of elements)`.
    fn storage(&mut self) -> Result<(), String> {
        let Value::Tuple(Tuple { items, .. }) = self.pop()? else {
            return Err(unknown("a storage"));
        };
        let [Value::Text(kind), Value::Name(class), Value::Text(key), _, _] = &*items else {
            return Err(unknown("a storage"));
        };
        if &**kind != "storage" {
            return Err(unknown("a storage"));
        }
        let dtype = StoredDtype::of_class(class).ok_or_else(|| {
            format!(
                "its elements are of {class}, which is none of float, half, bfloat16, double \
                     and integers"
            )
        })?;
        self.stack.push(Value::Storage(dtype, Rc::clone(key)));
        Ok(())
    }

    /// Reads a call of one of the known functions.
    fn reduce(&mut self) -> Result<(), String> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Tuple(Tuple { items, .. }), Value::Name(name)) = (arguments, function) else {
            return Err(unknown("a call"));
        };
        let made = match (&*name, &*items) {
            (DICT, []) => Value::Dict(Rc::default()),
            (
                TENSOR,
                [
                    Value::Storage(dtype, key),
                    Value::Int(offset),
                    Value::Tuple(shape),
                    Value::Tuple(strides),
                    ..,
                ],
            ) => Value::Tensor(Rc::new(StoredTensor {
                dtype: *dtype,
                key: key.to_string(),
                offset: usize::try_from(*offset).map_err(|_| unknown("an offset"))?,
                shape: sizes(shape)?,
                strides: sizes(strides)?,
            })),
            (PARAMETER, [Value::Tensor(tensor), ..]) => Value::Tensor(Rc::clone(tensor)),
            _ => return Err(format!("it calls {name}, and only tensors are read")),
        };
        self.stack.push(made);
        Ok(())
    }
}

fn sizes(tuple: &Tuple) -> Result<Vec<usize>, String> {
    let size = |item: &Value| match item {
        Value::Int(size) => usize::try_from(*size).ok(),
        _ => None,
    };
    tuple.items.iter().map(size).collect::<Option<_>>().ok_or_else(|| unknown("a shape"))
}

fn unknown(what: &str) -> String {
    format!("its pickle has {what} that is not known")
}
