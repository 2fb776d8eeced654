//! Compiled templates whose computation and output pass through [`effort`]. Fuel counts
//! instructions, but a single instruction may double a text, compare two lists or write a page.
//!
//! Before an instruction that reads its operands, a filter counts them: it takes them from the
//! stack, and an unpacked list puts them back.

use std::collections::BTreeMap;

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions, Token, tokenize};
use minijinja::{Error, ErrorKind, Value};

use super::{effort, environment, namespaces};

/// The index that means: not in the library's cache of filters.
const UNCACHED: u8 = u8::MAX;

/// The instructions of a template and of its blocks.
pub(super) struct Metered<'env> {
    pub(super) instructions: Instructions<'env>,
    pub(super) blocks: BTreeMap<&'env str, Instructions<'env>>,
}

impl<'env> Metered<'env> {
    /// Meters a compiled template.
    ///
    /// # Errors
    /// When it includes or extends another template, because transformers has none to load.
    pub(super) fn new(compiled: &CompiledTemplate<'env>) -> Result<Self, Error> {
        let block = |(name, block): (&&'env str, &Instructions<'env>)| Ok((*name, metered(block)?));
        let blocks = compiled.blocks.iter().map(block).collect::<Result<_, Error>>()?;
        Ok(Self { instructions: metered(&compiled.instructions)?, blocks })
    }
}

/// Returns the template with a filter around the left side of each multiplication, which returns it
/// unchanged. Otherwise the library would multiply constants while it compiles. No fuel and no
/// filter counts that.
pub(super) fn unfolded(source: &str) -> String {
    let mut unfolded = String::with_capacity(source.len());
    let (mut done, mut is_after_value) = (0, false);
    for token in tokenize(source, false, environment::syntax()) {
        // An invalid template is rejected when it is compiled.
        let Ok((token, span)) = token else { break };
        let start = span.start_offset as usize;
        if let (Token::Mul, true, Some(before)) = (&token, is_after_value, source.get(done..start))
        {
            unfolded.push_str(before);
            unfolded.push_str(&format!("|{} ", effort::SAME));
            done = start;
        }
        is_after_value = matches!(
            token,
            Token::Ident(_)
                | Token::Str(_)
                | Token::String(_)
                | Token::Int(_)
                | Token::Int128(_)
                | Token::Float(_)
                | Token::ParenClose
                | Token::BracketClose
                | Token::BraceClose
        );
    }
    unfolded.push_str(&source[done..]);
    unfolded
}

fn metered<'env>(plain: &Instructions<'env>) -> Result<Instructions<'env>, Error> {
    let mut metered = Instructions::new(plain.name(), plain.source());
    // Index: an instruction's old place. Value: the new place of that instruction, or of the filter
    // before it.
    let mut places: Vec<u32> = Vec::new();
    let mut end = 0;
    for at in 0.. {
        // Jumps may go to the end.
        places.push(end);
        let Some(instruction) = plain.get(at) else { break };
        for instruction in expanded(instruction)? {
            let place = match (plain.get_span(at), plain.get_line(at)) {
                (Some(span), _) => metered.add_with_span(instruction, span),
                (None, Some(line)) => {
                    metered.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX))
                }
                (None, None) => metered.add(instruction),
            };
            end = place + 1;
        }
    }
    for at in 0..end {
        if let Some(target) = metered.get_mut(at).and_then(target)
            && let Some(place) = places.get(*target as usize)
        {
            *target = *place;
        }
    }
    Ok(metered)
}

/// Returns the instructions that replace an instruction.
fn expanded<'env>(instruction: &Instruction<'env>) -> Result<Vec<Instruction<'env>>, Error> {
    use Instruction as I;
    let looked_at = |filter: &'static str, count: u16| {
        vec![
            I::ApplyFilter(filter, Some(count), UNCACHED),
            I::UnpackList(usize::from(count)),
            instruction.clone(),
        ]
    };
    Ok(match instruction {
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::Add | I::StringConcat => looked_at(effort::OPERANDS, 2),
        I::Eq | I::Ne => looked_at(effort::COMPARED, 2),
        I::Gt | I::Gte | I::Lt | I::Lte | I::In | I::CompareAndPreserve(_) => {
            looked_at(effort::OPERANDS, 2)
        }
        I::GetItem => {
            vec![I::ApplyFilter(effort::KEY, Some(1), UNCACHED), instruction.clone()]
        }
        // A loop compares the values with those of the round before.
        I::CallMethod("changed", Some(count)) => looked_at(effort::OPERANDS, *count),
        I::CallMethod("changed", None) => return Err(refused("values to compare from a list")),
        I::Mul => looked_at(effort::FACTORS, 2),
        I::Slice => looked_at(effort::OPERANDS, 4),
        // Keys are hashed.
        I::BuildMap(pairs) if *pairs > 0 => match u16::try_from(2 * pairs) {
            Ok(count) => looked_at(effort::OPERANDS, count),
            Err(_) => return Err(refused("a mapping of that many keys")),
        },
        I::MergeKwargs(lists) | I::UnpackLists(lists) => match u16::try_from(*lists) {
            Ok(count) => looked_at(effort::OPERANDS, count),
            Err(_) => return Err(refused("that many lists of arguments")),
        },
        I::SetAttr(_) => vec![
            I::Swap,
            I::ApplyFilter(namespaces::FILTER, Some(1), UNCACHED),
            I::Swap,
            instruction.clone(),
        ],
        I::Include(_) | I::LoadBlocks => return Err(refused("another template")),
        _ => vec![instruction.clone()],
    })
}

/// Returns the jump target of an instruction, if it has one.
fn target<'a>(instruction: &'a mut Instruction<'_>) -> Option<&'a mut u32> {
    use Instruction as I;
    match instruction {
        I::Iterate(target)
        | I::Jump(target)
        | I::JumpIfFalse(target)
        | I::JumpIfFalseOrPop(target)
        | I::JumpIfTrueOrPop(target)
        | I::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("a chat template cannot load {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_product_is_a_constant() {
        let source = "{% set a=2*3 %}*{{ f(*b, **c) * [1]*-d.e * 'x'**2 }}{{ '*' }}";
        let same = format!("|{} ", effort::SAME);
        let expected = format!(
            "{{% set a=2{same}*3 %}}*{{{{ f(*b, **c) {same}* [1]{same}*-d.e {same}* 'x'**2 }}}}{{{{ '*' }}}}"
        );
        assert_eq!(unfolded(source), expected);
        for other in ["", "{{ 'x' }", "{{ 2 * ", "{% raw %}{{ 2 * 3 }}{% endraw %}"] {
            assert_eq!(unfolded(other).replace(&same, ""), other);
        }
    }

    #[test]
    fn templates_mean_what_they_meant() {
        for (source, expected) in [
            ("{{ 2 * 3 + 4 }}{{ 4 ~ 5 * -1 }}", "104-5"),
            ("{{ -2 ** 2 * 3 }}{{ 'ab' * 2 }}{{ 2 * ['a'] }}", "12abab['a', 'a']"),
            (
                "{% for i in [1, 2] %}{% if i == 2 %}two{% else %}one{% endif %},{% endfor %}",
                "one,two,",
            ),
            ("{% macro m(a, b=2) %}{{ a + b }}!{% endmacro %}{{ m(1) }}{{ m(1, b=5) }}", "3!6!"),
            ("{{ 1 < 2 < 3 }}{{ 2 in [1, 2] }}{{ 'abc'[1:] }}{{ {'a': 1}['a'] }}", "TrueTruebc1"),
            (
                "{% for i in [[1, [2]]] recursive %}{{ loop(i) if i is not number else i }}{% endfor %}",
                "12",
            ),
            ("{% set a %}x{{ 1 }}{% endset %}{{ a }}{% filter upper %}y{% endfilter %}", "x1Y"),
            ("{% block b %}in{% endblock %}{% call(x) m() %}{% endcall %}", ""),
            (
                "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}.",
                "01.",
            ),
            ("{{ x is defined and 1 or 'no' }}{{ missing ~ 'a' }}{{ none }}", "noaNone"),
        ] {
            let outcome = super::super::rendered(source);
            match expected {
                "" => assert!(outcome.is_err(), "{source}"),
                _ => assert_eq!(outcome.as_deref(), Ok(expected), "{source}"),
            }
        }
    }
}
