// Tokenizers as files: Hugging Face's tokenizer.json, and the two files of GPT-2.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "gpt/bpe.h"

namespace gpt {

/// Reads a tokenizer. `path` is one of
///   - a tokenizer.json: a BPE model whose pre-tokenizer is ByteLevel (without a prefix space), or isolating Splits or
///     Digits followed by it, and whose normalizer is made of NFC, NFD, NFKC, NFKD, Lowercase, Prepend and Replace;
///     post-processors, decoders, truncation and padding are not looked at;
///   - vocab.json (Hugging Face) or encoder.json (OpenAI), with merges.txt or vocab.bpe beside it;
///   - merges.txt or vocab.bpe, with vocab.json or encoder.json beside it.
/// They give the tokens that Hugging Face's tokenizers gives without special tokens around them. Throws FileError,
/// naming the file and what it has that is not supported or malformed.
Bpe read_tokenizer(const std::string& path);

/// Writes a tokenizer.json that Hugging Face's tokenizers reads. Throws FileError if it cannot be written; the file
/// there before stays until the new one is complete.
void write_tokenizer(const Bpe& bpe, const std::string& path);

/// The bytes in the order of the letters that stand for them in these files.
std::array<uint8_t, 256> byte_alphabet();

}  // namespace gpt
