"""Turns captions into token ids with a vocabulary learned from the texts, CLIP's, or one of transformers."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer as Encoder
from tokenizers import models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from bench.errors import UserError, one_line
from bench.suite.settings import TowerSettings
from bench.suite.tower_files import hub_name, missing_tokenizer, tokenizer_folder, tokenizer_name

PAD, UNKNOWN = "<pad>", "<unk>"
MAX_KEPT_WORDS = 1 << 18  #: words whose ids a process keeps, about 60 MB
MAX_KEPT_CAPTIONS = 1 << 16  #: captions whose ids a learned vocabulary keeps


class Tokenizer(Protocol):
    """Captions -> ids of a fixed length, or the stored features of captions."""

    size: int  #: number of ids; of stored features, Q numbers
    context_length: int

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, context_length] int64, or [n, Q] floating."""


class TrainingTexts(Protocol):
    """Maker of tokenizers from the training pairs."""

    def __call__(self, tokens: int, context_length: int) -> Tokenizer:
        """Return a vocabulary of at most `tokens` tokens, learned from all captions."""

    def stored(self) -> Tokenizer:
        """Return the lookup of captions in the stored text features. UserError if there are none."""


class SmallVocabulary:
    """Byte-pair tokens learned from the training texts: a 49,408-word table would be most of a tiny model.

    The end token has the largest id, because open_clip's text tower reads out at the arg max of the ids.
    """

    def __init__(self, texts: list[str], size: int, context_length: int) -> None:
        tokenizer = Encoder(models.BPE(unk_token=UNKNOWN))
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        trainer = trainers.BpeTrainer(vocab_size=size - 2, special_tokens=[PAD, UNKNOWN], show_progress=False)
        tokenizer.train_from_iterator(sorted(set(texts)), trainer)
        self.tokenizer = tokenizer
        learned: int = tokenizer.get_vocab_size()
        self.start, self.end, self.size = learned, learned + 1, learned + 2
        self.context_length = context_length
        self._rows: dict[str, list[int]] = {}

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, context_length] int64; a long text loses its tail, never its end token."""
        if len(self._rows) > MAX_KEPT_CAPTIONS:
            self._rows.clear()
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        for text, encoding in zip(new, self.tokenizer.encode_batch(new), strict=True):
            ids = [self.start, *encoding.ids[: self.context_length - 2], self.end]
            self._rows[text] = ids + [0] * (self.context_length - len(ids))
        return torch.tensor([self._rows[text] for text in texts], dtype=torch.int64)


class ClipTokenizer:
    """CLIP's byte-pair encoding: open_clip's tokenizer, which keeps a bounded number of the words that it has met."""

    def __init__(self, context_length: int, options: dict[str, Any]) -> None:
        """`options`: further arguments of open_clip's SimpleTokenizer."""
        from open_clip.tokenizer import SimpleTokenizer

        self._whole = SimpleTokenizer(context_length=context_length, **options)
        self.size, self.context_length = self._whole.vocab_size, context_length
        self._specials = dict(self._whole.cache)

    def __call__(self, texts: list[str]) -> Tensor:
        """n strings -> [n, context_length] int64; a long text loses its tail, never its end token."""
        if len(self._whole.cache) > MAX_KEPT_WORDS:
            self._whole.cache = dict(self._specials)
        tokens: Tensor = self._whole(texts)
        return tokens


def published_tokenizer(towers: TowerSettings, config: dict[str, Any], _learn: Any) -> Tokenizer:
    """Return the tokenizer of transformers that the text tower names, or CLIP's."""
    options = config.get("tokenizer_kwargs") or {}
    if tokenizer_name(towers):
        return HubTokenizer(towers, config["vocab_size"], config["context_length"], options)
    return ClipTokenizer(config["context_length"], options)


class HubTokenizer:
    """A tokenizer of transformers, read at the first caption, because costs are counted without it.

    The towers name a folder, or a model on the hub, whose files are first looked for in the data folder. Raises
    UserError if there are none or if they have more ids than the tower.
    """

    def __init__(self, towers: TowerSettings, size: int, context_length: int, options: dict[str, Any]) -> None:
        self._towers, self.size, self.context_length, self._options = towers, size, context_length, options

    @cached_property
    def files(self) -> Any:
        """open_clip's wrapper of the tokenizer, read at the first use."""
        from open_clip.tokenizer import HFTokenizer

        name, place = tokenizer_name(self._towers), tokenizer_folder(self._towers)
        assert name is not None
        source = str(place) if place else hub_name(name)
        try:
            tokenizer = HFTokenizer(source, context_length=self.context_length, **self._options)
        except ImportError as error:
            raise UserError("towers.text: needs transformers; pip install 'robust-cl-bench[bert]'") from error
        except (OSError, ValueError) as error:  # raised by the hub or the file system
            if place:
                reason = one_line(error, 200)
                raise UserError(f"towers.text: {place}: cannot be read: {reason}") from error
            lacking = missing_tokenizer(self._towers)
            looked = ", ".join(lacking.looked)
            raise UserError(f"towers.text: no {lacking.what} in {looked}; get it with: {lacking.get}") from error
        if len(tokenizer.tokenizer) > self.size:
            raise UserError(f"towers.text: {source}: has {len(tokenizer.tokenizer)} ids, but the tower {self.size}")
        return tokenizer

    def __call__(self, texts: list[str]) -> Tensor:
        tokens: Tensor = self.files(texts)
        return tokens
