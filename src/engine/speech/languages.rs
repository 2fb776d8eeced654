//! The languages of models that write down what they hear, by their codes.

/// The languages of Whisper whose word error rate is below one half.
pub(super) const SUPPORTED: [&str; 57] = [
    "af", "ar", "hy", "az", "be", "bs", "bg", "ca", "zh", "hr", "cs", "da", "nl", "en", "et", "fi",
    "fr", "gl", "de", "el", "he", "hi", "hu", "is", "id", "it", "ja", "kn", "kk", "ko", "lv", "lt",
    "mk", "ms", "mr", "mi", "ne", "no", "fa", "pl", "pt", "ro", "ru", "sr", "sk", "sl", "es", "sw",
    "sv", "tl", "ta", "th", "tr", "uk", "ur", "vi", "cy",
];

/// Languages that the model knows less well. They are served if a client asks for them.
pub(super) const FURTHER: [&str; 43] = [
    "la", "ml", "te", "bn", "br", "eu", "mn", "sq", "gu", "pa", "si", "km", "sn", "yo", "so", "oc",
    "ka", "tg", "sd", "am", "yi", "lo", "uz", "fo", "ht", "ps", "tk", "nn", "mt", "sa", "lb", "my",
    "bo", "mg", "as", "tt", "haw", "ln", "ha", "ba", "jw", "su", "yue",
];

/// The languages that Voxtral was trained for. As in vLLM, a client may name those of Whisper, too.
pub(super) const VOXTRAL: [&str; 9] = ["ar", "nl", "en", "fr", "de", "hi", "it", "pt", "es"];

/// The languages that Granite Speech was trained for, and those of its Plus form. As in vLLM, a
/// client may name those of Whisper, too.
pub(super) const GRANITE: [&str; 6] = ["en", "fr", "de", "ja", "pt", "es"];
pub(super) const GRANITE_PLUS: [&str; 5] = ["en", "fr", "de", "pt", "es"];

/// The names of the supported languages, in the same order.
const NAMES: [&str; SUPPORTED.len()] = [
    "Afrikaans",
    "Arabic",
    "Armenian",
    "Azerbaijani",
    "Belarusian",
    "Bosnian",
    "Bulgarian",
    "Catalan",
    "Chinese",
    "Croatian",
    "Czech",
    "Danish",
    "Dutch",
    "English",
    "Estonian",
    "Finnish",
    "French",
    "Galician",
    "German",
    "Greek",
    "Hebrew",
    "Hindi",
    "Hungarian",
    "Icelandic",
    "Indonesian",
    "Italian",
    "Japanese",
    "Kannada",
    "Kazakh",
    "Korean",
    "Latvian",
    "Lithuanian",
    "Macedonian",
    "Malay",
    "Marathi",
    "Maori",
    "Nepali",
    "Norwegian",
    "Persian",
    "Polish",
    "Portuguese",
    "Romanian",
    "Russian",
    "Serbian",
    "Slovak",
    "Slovenian",
    "Spanish",
    "Swahili",
    "Swedish",
    "Tagalog",
    "Tamil",
    "Thai",
    "Turkish",
    "Ukrainian",
    "Urdu",
    "Vietnamese",
    "Welsh",
];

/// Returns the name of a supported language.
pub(super) fn name(code: &str) -> Option<&'static str> {
    let index = SUPPORTED.iter().position(|known| *known == code)?;
    NAMES.get(index).copied()
}
