"""The data to learn from: Fashion-MNIST, of which 12,000 training and all test images come with d2lite, and a text."""

from typing import TYPE_CHECKING

from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from d2lite.data.batch_iterator import BatchIterator
    from d2lite.data.book_text import CHARACTERS, decode, encode, load_data_book_text
    from d2lite.data.download import URL, find_files, is_offline
    from d2lite.data.fashion_mnist import FASHION_MNIST, NUM_SHIPPED, SHIPPED, load_data_fashion_mnist, location

__all__, __getattr__, __dir__ = lazy_names(__name__)
