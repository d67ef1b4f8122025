// What gpt trains on: a dataset, of which the last part is held out, and the loaders over both.
#pragma once
#include <cleave/nn/data/token_dataset.h>
#include <cleave/nn/data/token_loader.h>

#include <string>

#include "gpt/options.h"

namespace gpt {

namespace nn = cleave::nn;

/// The folder of the C++ standard library's headers on this machine. Throws FileError if there is none.
std::string default_data();

struct Corpus {
  nn::TokenDataset train;
  nn::TokenDataset held_out;  ///< the last 5 %
};
/// Opens --data, by default the headers above, and sets the vocabulary, unless it was given, and the tokenizer of the
/// model for it, if it is of tokens; text is read as bytes. Throws what `nn::TokenDataset` throws; FileError for a
/// token that the model lacks (all are looked at, where the vocabulary was given and is smaller than the data's) and,
/// if the options ask for it, for files that are damaged; ValueError if a part is shorter than a window.
Corpus open_corpus(TrainOptions& options);

/// Global batches of the training part in an order that the seed chooses.
nn::TokenLoader training_loader(const Corpus& corpus, const TrainOptions& options, cleave::dist::Layout layout);
/// Windows spread evenly over the part that is held out, about 128 Ki tokens, each once.
nn::TokenLoader held_out_loader(const Corpus& corpus, const TrainOptions& options, cleave::dist::Layout layout);

}  // namespace gpt
