/* All that libcrypto has assembly for, in lengths that reach its several loops. Arguments: PEM files of private keys. */
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char data[20000], out[20100], back[20100], key[64], iv[32];
static const int lengths[] = {0, 1, 15, 16, 63, 64, 100, 127, 128, 200, 256, 384, 511, 512, 1000, 1024, 4096, 10000, 20000};
#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

static void digest(const char *name) {
    const EVP_MD *md = EVP_get_digestbyname(name);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned len = 0;
    for (int i = 0; md && i < COUNT(lengths); i++) {
        if (!EVP_DigestInit_ex(context, md, NULL)) break;
        EVP_DigestUpdate(context, data, (size_t)lengths[i]);
        EVP_DigestFinal_ex(context, out, &len);
        printf("%s %d %02x%02x\n", name, lengths[i], out[0], out[1]);
    }
    EVP_MD_CTX_free(context);
}

static void cipher(const char *name) {
    const EVP_CIPHER *kind = EVP_get_cipherbyname(name);
    if (!kind) {
        printf("no %s\n", name);
        return;
    }
    int authenticated = (EVP_CIPHER_flags(kind) & EVP_CIPH_FLAG_AEAD_CIPHER) != 0;
    int ccm = EVP_CIPHER_mode(kind) == EVP_CIPH_CCM_MODE, xts = EVP_CIPHER_mode(kind) == EVP_CIPH_XTS_MODE;
    for (int i = 0; i < COUNT(lengths); i++) {
        int len = lengths[i], got = 0, last = 0;
        if (xts && len < 16) continue;
        unsigned char tag[16];
        for (int direction = 1; direction >= 0; direction--) {
            EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
            unsigned char *from = direction ? data : out, *to = direction ? out : back;
            if (!EVP_CipherInit_ex(context, kind, NULL, NULL, NULL, direction)) break;
            if (ccm) {
                EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, direction ? NULL : tag);
            }
            EVP_CipherInit_ex(context, NULL, NULL, key, iv, direction);
            if (ccm) EVP_CipherUpdate(context, NULL, &got, NULL, len);
            if (authenticated && (len || !ccm)) EVP_CipherUpdate(context, NULL, &got, data, 21);
            int length = direction ? len : (len / 16 + 1) * 16;
            if (authenticated || EVP_CIPHER_block_size(kind) == 1) length = len;
            if (authenticated && !direction && !ccm) EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, tag);
            EVP_CipherUpdate(context, to, &got, from, length);
            int good = ccm && !direction ? 1 : EVP_CipherFinal_ex(context, to + got, &last);
            if (authenticated && direction) EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, tag);
            if (!direction) printf("%s %d %d %d\n", name, len, good, memcmp(data, back, (size_t)len) == 0);
            EVP_CIPHER_CTX_free(context);
        }
    }
}

static void signature(EVP_PKEY *pkey, const char *digest_name) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    size_t len = sizeof out;
    int good = EVP_DigestSignInit(context, NULL, digest_name ? EVP_get_digestbyname(digest_name) : NULL, NULL, pkey) == 1 &&
               EVP_DigestSign(context, out, &len, data, 1000) == 1;
    EVP_MD_CTX_free(context);
    context = EVP_MD_CTX_new();
    good = good && EVP_DigestVerifyInit(context, NULL, digest_name ? EVP_get_digestbyname(digest_name) : NULL, NULL, pkey) == 1 &&
           EVP_DigestVerify(context, out, len, data, 1000) == 1;
    EVP_MD_CTX_free(context);
    printf("%s %zu %d\n", EVP_PKEY_get0_type_name(pkey), len, good);
}

static void key_file(const char *path) {
    FILE *file = fopen(path, "r");
    EVP_PKEY *pkey = file ? PEM_read_PrivateKey(file, NULL, NULL, NULL) : NULL;
    if (!pkey) exit(2);
    fclose(file);
    signature(pkey, EVP_PKEY_is_a(pkey, "ED25519") ? NULL : "SHA256");
    EVP_PKEY_free(pkey);
}

static void exchange(const char *type, const char *group) {
    EVP_PKEY *a = group ? EVP_PKEY_Q_keygen(NULL, NULL, type, group) : EVP_PKEY_Q_keygen(NULL, NULL, type);
    EVP_PKEY *b = group ? EVP_PKEY_Q_keygen(NULL, NULL, type, group) : EVP_PKEY_Q_keygen(NULL, NULL, type);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(a, NULL);
    size_t len = sizeof out;
    int good = context && EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer(context, b) == 1 &&
               EVP_PKEY_derive(context, out, &len) == 1;
    printf("%s %d\n", group ? group : type, good);
    EVP_PKEY_CTX_free(context), EVP_PKEY_free(a), EVP_PKEY_free(b);
}

static void numbers(void) {
    BN_CTX *context = BN_CTX_new();
    BIGNUM *a = NULL, *b = NULL, *m = NULL, *r = BN_new();
    for (int digits = 16; digits <= 512; digits *= 2) {
        char text[513];
        for (int i = 0; i < digits; i++) text[i] = "123456789ABCDEF"[(i * 7 + digits) % 15];
        text[digits] = 0;
        BN_hex2bn(&a, text);
        text[0] = '3', text[digits - 1] = '7';
        BN_hex2bn(&m, text);
        BN_hex2bn(&b, "10001");
        BN_mul(r, a, m, context), BN_sqr(r, r, context), BN_div(NULL, r, r, a, context);
        BN_mod_exp(r, a, b, m, context);
        BN_mod_exp_mont_consttime(r, a, b, m, context, NULL);
        BN_mod_inverse(r, a, m, context);
        BN_gcd(r, a, m, context);
        char *hex = BN_bn2hex(r);
        printf("%d %.8s\n", digits, hex);
        OPENSSL_free(hex);
    }
    BN_free(a), BN_free(b), BN_free(m), BN_free(r), BN_CTX_free(context);
}

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * i >> 3);
    for (size_t i = 0; i < sizeof key; i++) key[i] = (unsigned char)(i * 29 + 1);
    OSSL_PROVIDER_load(NULL, "default"), OSSL_PROVIDER_load(NULL, "legacy");
    static const char *const digests[] = {"MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512", "SHA3-256", "SHAKE128", "RIPEMD160", "BLAKE2b512", "BLAKE2s256", "SM3", "whirlpool", "MD4"};
    static const char *const ciphers[] = {"AES-128-ECB", "AES-256-CBC", "AES-192-CTR", "AES-128-GCM", "AES-256-GCM", "AES-128-CCM", "AES-256-XTS", "AES-128-OCB", "AES-128-CFB", "AES-128-CFB8", "AES-128-CBC-HMAC-SHA1", "AES-128-CBC-HMAC-SHA256", "ChaCha20-Poly1305", "ChaCha20", "CAMELLIA-128-CBC", "CAMELLIA-256-ECB", "DES-EDE3-CBC", "ARIA-128-CBC", "RC4", "SEED-CBC", "BF-CBC", "id-aes128-wrap"};
    for (int i = 0; i < COUNT(digests); i++) digest(digests[i]);
    for (int i = 0; i < COUNT(ciphers); i++) cipher(ciphers[i]);
    for (int i = 1; i < argc; i++) key_file(argv[i]);
    exchange("EC", "P-256"), exchange("EC", "P-384"), exchange("EC", "P-224"), exchange("X25519", NULL), exchange("X448", NULL);
    numbers();
    return 0;
}
