"""The order in which a client of a federation trains on its samples: brim's pseudorandom permutations (Philox and a
Feistel network), as core/base/permutation.c computes them."""

ROUNDS = 8  # rounds of the Feistel network
SHUFFLE, CLIENT = 2, 10  # enum brim_stream_use
WORD = 0xFFFFFFFF


def philox(counter, key):
    """Returns four numbers of 32 bits (Salmon et al., 2011)."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second & WORD, first >> 32 ^ counter[3] ^ key[1], first & WORD]
        key = [key[0] + 0x9E3779B9 & WORD, key[1] + 0xBB67AE85 & WORD]
    return counter


def random4(seed, use, stream, item, block):
    return philox([block, item & WORD, item >> 32, use << 24 | stream], [seed & WORD, seed >> 32])


def permutation(seed, use, item, count):
    bits = 0
    while 1 << 2 * bits < count:
        bits += 1
    mask, numbers = (1 << bits) - 1, []
    for number in range(count):
        while True:
            left, right = number >> bits, number & mask
            for step in range(ROUNDS):
                left, right = right, left ^ random4(seed, use, step, item, right)[0] & mask
            number = left << bits | right
            if number < count:
                break
        numbers.append(number)
    return numbers


def client_order(seed, client, epoch, count):
    """Returns the places of a client's samples in an epoch; epochs are counted over all rounds."""
    key = random4(seed, CLIENT, 1, client, epoch)
    return permutation(seed, SHUFFLE, key[0] << 32 | key[1], count)
