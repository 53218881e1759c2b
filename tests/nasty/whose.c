/* The loader is asked what depends on who asks: the next definition behind one's own module (dlsym, dlvsym), a library by the search
 * path of one's own module (dlopen, dlmopen). A program ("program") and its library ("library") ask the same, by calls, by pointers,
 * by jumps through a procedure of the program, and from a constructor that dlopen runs. Each answer says whose it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef PLUG /* What dlopen finds, by the search path of the library alone. */

const char *whose_plug(void)
{
    return "the plug's";
}

__attribute__((constructor)) static void begins(void)
{
    const char *(*next)(void) = dlsym(RTLD_NEXT, "whose");
    printf("plug begins: next %s\n", next ? next() : "none");
}

#else

typedef void *Asks(void *, const char *);
extern Asks *volatile by_pointer;
void *jumps(void *, const char *);

static const char *answer(const char *(*found)(void))
{
    return found ? found() : "none";
}

__attribute__((noipa)) static void asks(const char *me, const char *plug)
{
    printf("%s: next %s\n", me, answer((const char *(*)(void))dlsym(RTLD_NEXT, "whose")));
    printf("%s: by pointer %s\n", me, answer((const char *(*)(void))by_pointer(RTLD_NEXT, "whose")));
    printf("%s: by jump %s\n", me, answer((const char *(*)(void))jumps(RTLD_NEXT, "whose")));
    printf("%s: malloc %d\n", me, dlvsym(RTLD_NEXT, "malloc", "GLIBC_2.2.5") != 0);
    void *opened = dlopen(plug, RTLD_NOW);
    printf("%s: plug %s\n", me, opened ? answer((const char *(*)(void))dlsym(opened, "whose_plug")) : "not found");
    void *apart = dlmopen(LM_ID_NEWLM, plug, RTLD_NOW);
    printf("%s: apart %s\n", me, apart ? answer((const char *(*)(void))dlsym(apart, "whose_plug")) : "not found");
    if (opened)
        dlclose(opened);
}

#ifdef LIBRARY

const char *whose(void)
{
    return "the library's";
}

void library_asks(const char *plug)
{
    asks("library", plug);
}

#else

const char *whose(void)
{
    return "the program's";
}

void library_asks(const char *plug);
Asks *volatile by_pointer = dlsym;

__attribute__((optimize("optimize-sibling-calls"))) void *jumps(void *handle, const char *name)
{
    return dlsym(handle, name);
}

int main(void)
{
    for (int i = 0; i < 3; i++) {
        asks("program", "libwhose_plug.so");
        library_asks("libwhose_plug.so");
    }
    return 7;
}

#endif
#endif
