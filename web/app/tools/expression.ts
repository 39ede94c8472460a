/** Arithmetic as people write it, read without `eval`: numbers, + - * / % ^, brackets, functions, constants. */

export class ExpressionError extends Error {
    constructor(message: string, at: number) {
        super(`${message} at character ${at + 1}`);
        this.name = "ExpressionError";
    }
}

const constants: Record<string, number> = { pi: Math.PI, e: Math.E, tau: 2 * Math.PI };

interface Fn {
    /** How many arguments, at least and at most. */
    arity: [number, number];
    run: (...given: number[]) => number;
}

const of1 = (run: (x: number) => number): Fn => ({ arity: [1, 1], run });

const functions: Record<string, Fn> = {
    abs: of1(Math.abs),
    ceil: of1(Math.ceil),
    cos: of1(Math.cos),
    exp: of1(Math.exp),
    floor: of1(Math.floor),
    ln: of1(Math.log),
    log: { arity: [1, 2], run: (x, base = 10) => (base === 10 ? Math.log10(x) : Math.log(x) / Math.log(base)) },
    max: { arity: [1, 100], run: Math.max },
    min: { arity: [1, 100], run: Math.min },
    mod: { arity: [2, 2], run: (a, b) => a - b * Math.floor(a / b) },
    pow: { arity: [2, 2], run: (a, b) => a ** b },
    round: { arity: [1, 2], run: (x, places = 0) => Math.round(x * 10 ** places) / 10 ** places },
    sin: of1(Math.sin),
    sqrt: of1(Math.sqrt),
    tan: of1(Math.tan),
    factorial: of1(factorial),
};

function factorial(n: number): number {
    if (!Number.isInteger(n) || n < 0) return Number.NaN;
    let product = 1;
    for (let k = 2; k <= n && Number.isFinite(product); k++) product *= k;
    return product;
}

const NUMBER = /(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?/y;
const NAME = /[A-Za-z_]\w*/y;
/** Brackets within brackets; more than anybody means. */
const DEEPEST = 200;

/** The value of an expression. */
export function evaluate(source: string): number {
    const reader = new Reader(source);
    const value = reader.sum();
    reader.end();
    return value;
}

class Reader {
    private at = 0;
    private depth = 0;

    constructor(private readonly source: string) {
        this.skip();
    }

    end(): void {
        if (this.at < this.source.length) throw this.wrong(`unexpected \`${this.source[this.at]}\``);
    }

    sum(): number {
        this.depth++;
        if (this.depth > DEEPEST) throw this.wrong("too many brackets");
        let value = this.product();
        for (;;) {
            if (this.eat("+")) value += this.product();
            else if (this.eat("-") || this.eat("−")) value -= this.product();
            else break;
        }
        this.depth--;
        return value;
    }

    private product(): number {
        let value = this.signed();
        for (;;) {
            // Two stars are a power, which binds tighter.
            if (!this.source.startsWith("**", this.at) && (this.eat("*") || this.eat("×") || this.eat("·"))) {
                value *= this.signed();
            } else if (this.eat("/") || this.eat("÷")) value /= this.signed();
            else if (this.eat("%")) value %= this.signed();
            else return value;
        }
    }

    /** A sign binds less than a power: -2^2 is -4. */
    private signed(): number {
        let sign = 1;
        for (;;) {
            if (this.eat("-") || this.eat("−")) sign = -sign;
            else if (!this.eat("+")) return sign * this.power();
        }
    }

    private power(): number {
        const base = this.postfix();
        return this.eat("**") || this.eat("^") ? base ** this.signedPower() : base;
    }

    private signedPower(): number {
        this.depth++;
        if (this.depth > DEEPEST) throw this.wrong("too many powers");
        const value = this.signed();
        this.depth--;
        return value;
    }

    private postfix(): number {
        let value = this.atom();
        while (this.eat("!")) value = factorial(value);
        return value;
    }

    private atom(): number {
        if (this.eat("(")) {
            const value = this.sum();
            this.expect(")");
            return value;
        }
        const number = this.match(NUMBER);
        if (number !== undefined) return Number(number);
        const start = this.at;
        const name = this.match(NAME)?.toLowerCase();
        if (name === undefined) throw this.wrong(this.at < this.source.length ? "expected a number" : "unexpected end");
        if (this.eat("(")) return this.call(name, start);
        const constant = Object.hasOwn(constants, name) ? constants[name] : undefined;
        if (constant === undefined) throw new ExpressionError(`unknown name \`${name}\``, start);
        return constant;
    }

    private call(name: string, start: number): number {
        const given: number[] = [];
        if (!this.eat(")")) {
            do given.push(this.sum());
            while (this.eat(","));
            this.expect(")");
        }
        const fn = Object.hasOwn(functions, name) ? functions[name] : undefined;
        if (!fn) throw new ExpressionError(`unknown function \`${name}\``, start);
        const [least, most] = fn.arity;
        if (given.length < least || given.length > most) {
            throw new ExpressionError(`\`${name}\` does not take ${given.length} arguments`, start);
        }
        return fn.run(...given);
    }

    private match(pattern: RegExp): string | undefined {
        pattern.lastIndex = this.at;
        const found = pattern.exec(this.source)?.[0];
        if (found === undefined) return undefined;
        this.at += found.length;
        this.skip();
        return found;
    }

    private eat(text: string): boolean {
        if (!this.source.startsWith(text, this.at)) return false;
        this.at += text.length;
        this.skip();
        return true;
    }

    private expect(text: string): void {
        if (!this.eat(text)) throw this.wrong(`expected \`${text}\``);
    }

    private skip(): void {
        while (/\s/.test(this.source[this.at] ?? "")) this.at++;
    }

    private wrong(message: string): ExpressionError {
        return new ExpressionError(message, this.at);
    }
}
